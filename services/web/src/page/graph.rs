//! The job graph as a picture: jobs in columns by what they wait for.

use std::collections::BTreeMap;

use maud::html;

use super::html::{Html, Piece};
use super::words::Stand;

/// One job of the graph.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) to: String,
    pub(crate) stand: Stand,
    /// Its state in a word.
    pub(crate) word: String,
    /// A second line, such as how long it took.
    pub(crate) more: String,
    pub(crate) voting: bool,
    /// Jobs it waits for; whether softly.
    pub(crate) after: Vec<(String, bool)>,
}

const HEIGHT: usize = 46;
const GAP_X: usize = 56;
const GAP_Y: usize = 16;
const EDGE: usize = 8;
/// The most jobs that are drawn.
const MOST: usize = 1_000;
/// The longest name that is written out.
const LETTERS: usize = 34;
/// The room of a letter.
const LETTER: usize = 8;

/// How far from the jobs that wait for nothing each job stands.
fn columns(nodes: &[Node]) -> Vec<usize> {
    let index: BTreeMap<&str, usize> =
        nodes.iter().enumerate().map(|(place, node)| (node.name.as_str(), place)).collect();
    let mut column = vec![0_usize; nodes.len()];
    // A frozen graph has no cycles; were there one, the rounds are counted.
    for _ in 0..nodes.len() {
        let mut moved = false;
        for (place, node) in nodes.iter().enumerate() {
            let before = node.after.iter().filter_map(|(name, _)| index.get(name.as_str()));
            let wanted = before.filter_map(|place| column.get(*place)).map(|column| column + 1).max().unwrap_or(0);
            if let Some(own) = column.get_mut(place)
                && *own < wanted
                && wanted < nodes.len()
            {
                *own = wanted;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    column
}

/// The picture; nothing when there are no jobs, or too many.
pub(crate) fn draw(nodes: &[Node]) -> Html {
    if nodes.is_empty() || nodes.len() > MOST {
        return Html::default();
    }
    let column = columns(nodes);
    let longest = nodes.iter().map(|node| node.name.chars().count().min(LETTERS)).max().unwrap_or(0);
    let wide = (longest * LETTER + 34).max(150);
    let mut filled: BTreeMap<usize, usize> = BTreeMap::new();
    let mut places: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (node, column) in nodes.iter().zip(&column) {
        let row = filled.entry(*column).or_default();
        places.insert(&node.name, (EDGE + column * (wide + GAP_X), EDGE + *row * (HEIGHT + GAP_Y)));
        *row += 1;
    }
    let width = filled.keys().max().map_or(0, |last| (last + 1) * (wide + GAP_X)) + 2 * EDGE - GAP_X;
    let height = filled.values().max().map_or(0, |rows| rows * (HEIGHT + GAP_Y)) + 2 * EDGE - GAP_Y;
    let mut edges = Html::default();
    for node in nodes {
        let Some((x, y)) = places.get(node.name.as_str()) else { continue };
        for (name, soft) in &node.after {
            let Some((from_x, from_y)) = places.get(name.as_str()) else { continue };
            let (from_x, from_y, to_y) = (from_x + wide, from_y + HEIGHT / 2, y + HEIGHT / 2);
            let bend = GAP_X / 2;
            let (near, end) = (x.saturating_sub(bend), x.saturating_sub(2));
            let line = format!("M{from_x} {from_y} C{} {from_y} {near} {to_y} {end} {to_y}", from_x + bend);
            edges.add(html! {
                path
                    class={ "edge" (if *soft { " soft" } else { "" }) }
                    d=(line)
                {
                    title { (node.name) " waits for " (name) @if *soft { ", softly" } }
                }
            });
        }
    }
    let mut jobs = Html::default();
    for node in nodes {
        let Some((x, y)) = places.get(node.name.as_str()) else { continue };
        let mut name: String = node.name.chars().take(LETTERS).collect();
        if name.len() < node.name.len() {
            name.push('…');
        }
        jobs.add(html! {
            a
                href=(node.to)
                class={ "node " (node.stand.class()) (if node.voting { "" } else { " nonvoting" }) }
                aria-label={ (node.name) ": " (node.word) (if node.voting { "" } else { ", non-voting" }) }
            {
                title { (node.name) ": " (node.word) }
                rect x=(*x) y=(*y) width=(wide) height=(HEIGHT) rx="8" {}
                rect class="edge-bar" x=(*x) y=(*y) width="5" height=(HEIGHT) rx="2.5" {}
                text class="name" x=(x + 16) y=(y + 20) { (name) }
                text class="word" x=(x + 16) y=(y + 37) {
                    (node.word)
                    @if !node.more.is_empty() { " · " (node.more) }
                }
            }
        });
    }
    html! {
        figure class="graph" tabindex="0" role="group" aria-label="Job graph" {
            svg
                viewBox={ "0 0 " (width) " " (height) }
                width=(width)
                height=(height)
                role="group"
                aria-label="Jobs and what they wait for"
            {
                (edges)
                (jobs)
            }
            figcaption class="small muted" {
                "A line goes from a job to those that wait for it; a dashed one is soft: it holds only if both run."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, after: &[(&str, bool)]) -> Node {
        Node {
            name: name.into(),
            to: format!("/{name}"),
            stand: Stand::Good,
            word: "success".into(),
            more: String::new(),
            voting: true,
            after: after.iter().map(|(name, soft)| ((*name).to_owned(), *soft)).collect(),
        }
    }

    #[test]
    fn a_job_stands_behind_everything_it_waits_for() {
        let nodes = [
            node("package", &[("unit", false), ("lint", true)]),
            node("unit", &[("compile", false)]),
            node("compile", &[]),
            node("lint", &[]),
            node("publish", &[("package", false)]),
        ];
        assert_eq!(columns(&nodes), [2, 1, 0, 0, 3]);
        let picture = draw(&nodes).into_string();
        assert_eq!(picture.matches("<a href=").count(), 5);
        assert_eq!(picture.matches(r#"class="edge""#).count(), 3);
        assert_eq!(picture.matches(r#"class="edge soft""#).count(), 1);
    }

    #[test]
    fn a_cycle_or_a_stranger_stops_nothing() {
        let nodes = [node("a", &[("b", false)]), node("b", &[("a", false)]), node("c", &[("nobody", false)])];
        assert_eq!(columns(&nodes).len(), 3);
        assert!(draw(&nodes).into_string().contains("</svg>"));
        assert!(draw(&[]).is_empty());
    }

    #[test]
    fn names_are_text() {
        let picture = draw(&[node("<script>alert(1)</script>", &[])]).into_string();
        assert!(!picture.contains("<script"), "{picture}");
    }
}
