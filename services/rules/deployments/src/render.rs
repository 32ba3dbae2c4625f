//! A graph as a picture: DOT, JSON, SVG.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::fault::Fault;
use crate::graph::{Graph, Index};

/// The graph in the language of Graphviz. `without` are types that are left out, such as `stage`.
pub fn dot(graph: &Graph, without: &[String]) -> String {
    let shown = shown(graph, without);
    let mut out =
        "digraph deployment {\n  rankdir=LR;\n  node [shape=box, style=filled, fillcolor=white];\n".to_owned();
    for index in &shown {
        let style = match graph.task(*index).kind() {
            Some("group") => ", shape=box3d, fillcolor=lightblue",
            Some("stage") => ", shape=rarrow, fillcolor=lightgrey",
            Some("skipped") => ", style=dashed",
            None => ", color=red, fontcolor=red",
            _ if graph.task(*index).is_marked_skipped() => ", style=dashed",
            _ => "",
        };
        let name = quoted(graph.name(*index));
        let _ = writeln!(out, "  {name} [label={name}{style}];");
    }
    for (from, to) in edges(graph, &shown) {
        let _ = writeln!(out, "  {} -> {};", quoted(graph.name(from)), quoted(graph.name(to)));
    }
    out.push_str("}\n");
    out
}

/// The graph as data: nodes in order with their types, edges sorted.
pub fn json(graph: &Graph, without: &[String]) -> Value {
    let shown = shown(graph, without);
    let node = |index: &Index| {
        let task = graph.task(*index);
        json!({"id": graph.name(*index), "type": task.kind(), "skipped": task.is_marked_skipped()})
    };
    let mut edges: Vec<[&str; 2]> = edges(graph, &shown).map(|(from, to)| [graph.name(from), graph.name(to)]).collect();
    edges.sort_unstable();
    json!({"nodes": shown.iter().map(node).collect::<Vec<_>>(), "edges": edges})
}

/// The graph drawn: what waits stands to the right of what it waits for.
///
/// # Errors
/// [`Fault::Cycle`].
pub fn svg(graph: &Graph, without: &[String]) -> Result<String, Fault> {
    const WIDTH: usize = 220;
    const HEIGHT: usize = 34;
    let shown = shown(graph, without);
    let order = graph.part(shown.clone()).order()?;
    let mut column: BTreeMap<Index, usize> = BTreeMap::new();
    for index in &order {
        let after = graph.before(*index).iter().filter_map(|before| column.get(before)).max();
        column.insert(*index, after.map_or(0, |before| before + 1));
    }
    let mut rows: BTreeMap<usize, usize> = BTreeMap::new();
    let mut places: BTreeMap<Index, (usize, usize)> = BTreeMap::new();
    for index in &shown {
        let column = column.get(index).copied().unwrap_or(0);
        let row = rows.entry(column).or_default();
        places.insert(*index, (10 + column * (WIDTH + 50), 10 + *row * (HEIGHT + 12)));
        *row += 1;
    }
    let wide = 20 + (rows.keys().max().copied().unwrap_or(0) + 1) * (WIDTH + 50);
    let high = 20 + rows.values().max().copied().unwrap_or(1) * (HEIGHT + 12);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n"
    );
    for (from, to) in edges(graph, &shown) {
        let (Some((x, y)), Some((u, v))) = (places.get(&from), places.get(&to)) else { continue };
        let (x, y, v) = (x + WIDTH, y + HEIGHT / 2, v + HEIGHT / 2);
        let _ = writeln!(
            out,
            "<path d=\"M{x} {y} C{} {y} {} {v} {u} {v}\" fill=\"none\" stroke=\"#888\"/>",
            x + 25,
            u.saturating_sub(25)
        );
    }
    for (index, (x, y)) in &places {
        let fill = match graph.task(*index).kind() {
            Some("group") => "#cfe8ff",
            Some("stage") => "#dddddd",
            Some("skipped") => "#f7f7f7",
            _ => "#ffffff",
        };
        let name = escaped(graph.name(*index));
        let _ = writeln!(
            out,
            "<g><title>{name}</title><rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"4\" \
             fill=\"{fill}\" stroke=\"#444\"/><text x=\"{}\" y=\"{}\">{name}</text></g>",
            x + 8,
            y + 21
        );
    }
    out.push_str("</svg>\n");
    Ok(out)
}

fn shown(graph: &Graph, without: &[String]) -> Vec<Index> {
    let kept = |index: &Index| {
        let kind = graph.task(*index).kind().unwrap_or("");
        !without.iter().any(|one| one == kind || (one == "skipped" && graph.task(*index).is_marked_skipped()))
    };
    (0..graph.len()).filter(kept).collect()
}

fn edges<'g>(graph: &'g Graph, shown: &'g [Index]) -> impl Iterator<Item = (Index, Index)> + 'g {
    let there = |index: Index| shown.binary_search(&index).is_ok();
    graph.edges().filter(move |(from, to)| there(*from) && there(*to))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

fn escaped(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
