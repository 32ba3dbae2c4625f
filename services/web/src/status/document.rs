//! A status as it is told: put together of pieces that are the same from one document to the next.
//!
//! Of a job or an item nearly all stays as it is while thousands of events go by: only the stretches that run on do
//! not. So what stays is written down once, with room where those stand, and a document is these texts one after the
//! other.

use std::fmt::{self, Display};
use std::sync::{Arc, OnceLock};

use serde_json::{Value as Json, json};

use crate::answers::{ItemStatus, JobStatus};
use crate::page::JobHtml;

/// A JSON object as text, with room for members that run on.
#[derive(Debug)]
struct Template {
    before: String,
    after: String,
}

impl Template {
    /// Room where the object has these members, all of them null.
    ///
    /// Names and quotes within its texts are escaped, so that no text of others is taken for them.
    fn of(object: &Json, members: &[&str]) -> Template {
        let text = object.to_string();
        let room = members.iter().map(|name| format!("\"{name}\":null")).collect::<Vec<_>>().join(",");
        match text.split_once(&room) {
            Some((before, after)) => Template { before: before.to_owned(), after: after.to_owned() },
            None => Template { before: text, after: String::new() },
        }
    }
}

/// What stays of a job as long as nothing happens to it.
#[derive(Debug)]
pub(crate) struct JobPiece {
    /// All of it, without the stretches.
    pub(crate) json: Json,
    text: Template,
    /// As it stands on the page of now.
    pub(crate) html: OnceLock<JobHtml>,
}

impl JobPiece {
    /// Of a job whose `elapsed_time` and `remaining_time` are nothing.
    pub(crate) fn new(job: &JobStatus) -> JobPiece {
        let json = json!(job);
        JobPiece { text: Template::of(&json, &["elapsed_time", "remaining_time"]), json, html: OnceLock::new() }
    }
}

/// A job of an item.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) piece: Arc<JobPiece>,
    /// How long it runs or ran, in milliseconds.
    pub(crate) elapsed: Option<i64>,
    /// How much longer it is thought to take, in milliseconds.
    pub(crate) remaining: Option<i64>,
}

/// What stays of an item as long as nothing happens to it.
#[derive(Debug)]
pub(crate) struct ItemPiece {
    /// All of it, without its jobs and how long it still takes.
    pub(crate) json: Json,
    text: Template,
}

impl ItemPiece {
    /// Of an item whose `remaining_time` is nothing and whose `jobs` are none.
    pub(crate) fn new(item: &ItemStatus) -> ItemPiece {
        let json = json!(item);
        ItemPiece { text: Template::of(&json, &["remaining_time"]), json }
    }
}

/// An item of a queue.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) piece: Arc<ItemPiece>,
    /// How much longer it is thought to take, in milliseconds.
    pub(crate) remaining: Option<i64>,
    pub(crate) jobs: Vec<Job>,
}

impl Item {
    /// All of it as one value.
    pub(crate) fn json(&self) -> Json {
        let mut json = self.piece.json.clone();
        json["remaining_time"] = self.remaining.into();
        json["jobs"] = self
            .jobs
            .iter()
            .map(|job| {
                let mut json = job.piece.json.clone();
                json["elapsed_time"] = job.elapsed.into();
                json["remaining_time"] = job.remaining.into();
                json
            })
            .collect();
        json
    }
}

/// A queue of a pipeline.
#[derive(Debug)]
pub(crate) struct Queue {
    /// All of it; its `heads`, at its end, are none.
    pub(crate) json: Json,
    /// Zuul: an item that stands behind nothing begins a head of its own.
    pub(crate) heads: Vec<Vec<Item>>,
}

/// A pipeline.
#[derive(Debug)]
pub(crate) struct Pipeline {
    /// All of it; its `change_queues`, at its end, are none.
    pub(crate) json: Json,
    pub(crate) queues: Vec<Queue>,
}

impl Pipeline {
    /// The items of all its queues.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> {
        self.queues.iter().flat_map(|queue| queue.heads.iter().flatten())
    }
}

/// The status of a tenant as of an event. Displayed, it is the document of the API.
#[derive(Debug)]
pub(crate) struct Document {
    /// All of it; `position` and `position_ms` are null, and its `pipelines`, at its end, are none.
    pub(crate) json: Json,
    pub(crate) position: String,
    pub(crate) position_ms: i64,
    pub(crate) pipelines: Vec<Pipeline>,
}

impl Document {
    /// Whether nothing but what runs on with the time differs, as long as both were made of the same pieces.
    pub(crate) fn lasts(&self, other: &Document) -> bool {
        let same_job = |a: &Job, b: &Job| Arc::ptr_eq(&a.piece, &b.piece);
        let same_item = |a: &Item, b: &Item| Arc::ptr_eq(&a.piece, &b.piece) && all(&a.jobs, &b.jobs, same_job);
        let same_head = |a: &Vec<Item>, b: &Vec<Item>| all(a, b, same_item);
        let same_queue = |a: &Queue, b: &Queue| a.json == b.json && all(&a.heads, &b.heads, same_head);
        let same_pipeline = |a: &Pipeline, b: &Pipeline| a.json == b.json && all(&a.queues, &b.queues, same_queue);
        self.json == other.json && all(&self.pipelines, &other.pipelines, same_pipeline)
    }
}

fn all<T>(a: &[T], b: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

/// A number of JSON, or null.
struct Number(Option<i64>);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => write!(f, "{number}"),
            None => f.write_str("null"),
        }
    }
}

fn joined<T>(
    f: &mut fmt::Formatter<'_>,
    entries: &[T],
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (number, entry) in entries.iter().enumerate() {
        if number > 0 {
            f.write_str(",")?;
        }
        write(f, entry)?;
    }
    Ok(())
}

/// An object whose text ends with an empty list, with what is in that list.
fn ending<T>(
    f: &mut fmt::Formatter<'_>,
    text: &str,
    entries: &[T],
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_str(text.strip_suffix("]}").unwrap_or(text))?;
    joined(f, entries, write)?;
    f.write_str("]}")
}

impl Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (elapsed, remaining) = (Number(self.elapsed), Number(self.remaining));
        f.write_str(&self.piece.text.before)?;
        write!(f, r#""elapsed_time":{elapsed},"remaining_time":{remaining}"#)?;
        f.write_str(&self.piece.text.after)
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.piece.text.before)?;
        write!(f, r#""remaining_time":{}"#, Number(self.remaining))?;
        ending(f, &self.piece.text.after, &self.jobs, |f, job| job.fmt(f))
    }
}

impl Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Template::of(&self.json, &["position", "position_ms"]);
        f.write_str(&text.before)?;
        write!(f, r#""position":{},"position_ms":{}"#, json!(self.position), self.position_ms)?;
        ending(f, &text.after, &self.pipelines, |f, pipeline| {
            ending(f, &pipeline.json.to_string(), &pipeline.queues, |f, queue| {
                ending(f, &queue.json.to_string(), &queue.heads, |f, head| {
                    f.write_str("[")?;
                    joined(f, head, |f, item| item.fmt(f))?;
                    f.write_str("]")
                })
            })
        })
    }
}
