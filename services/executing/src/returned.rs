//! What a job returned by `zuul_return`, and what of it means something to gatelog.
//!
//! Everything here was said by a job: each list has a limit, and what is beyond it or cannot be used is told.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde::{Deserialize, Serialize};
use url::Url;

/// The most warnings of one job, and the most characters of one.
const MOST_WARNINGS: usize = 50;
const LONGEST_WARNING: usize = 1000;
/// The most comments of one job, and the most characters of one.
const MOST_COMMENTS: usize = 1000;
const LONGEST_COMMENT: usize = 16 << 10;
/// The longest URL that is taken, in bytes.
const LONGEST_URL: usize = 4096;

/// What a job returned by `zuul_return`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// `data`: a map, or null when nothing was returned.
    pub data: Value,
    /// `secret_data`: in clear; seal it before it goes anywhere.
    pub secret_data: Value,
}

/// One remark on a file of the change. Zuul: `zuul.file_comments`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileComment {
    /// The line it is about, from 1; none: the whole file.
    pub line: Option<u32>,
    /// What it says.
    pub message: String,
    /// How grave it is; none: the job did not say.
    pub level: Option<CommentLevel>,
    /// The part of the file it is about.
    pub range: Option<CommentRange>,
}

/// How grave a remark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommentLevel {
    /// Good to know.
    Info,
    /// Look at it.
    Warning,
    /// Wrong.
    Error,
}

/// A part of a file: lines from 1, characters from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommentRange {
    /// Its first line.
    pub start_line: u32,
    /// Its first character there.
    pub start_character: u32,
    /// Its last line.
    pub end_line: u32,
    /// The character behind its last one there.
    pub end_character: u32,
}

/// A node that is to become an image. Zuul: `zuul.snapshot_nodes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotNode {
    /// The node's id.
    pub node: String,
    /// The image's name.
    pub image_name: String,
}

impl Returned {
    /// `zuul.<key>` of the data.
    pub fn zuul(&self, key: &str) -> Option<&Value> {
        self.data.as_map()?.get("zuul")?.as_map()?.get(key)
    }

    /// `zuul.log_url`, where the job says its logs are, with a slash at its end as Zuul puts it. Only an address that a
    /// browser follows over HTTP: it becomes a link in reports and on pages.
    pub fn log_url(&self) -> Option<String> {
        self.base().map(String::from)
    }

    fn base(&self) -> Option<Url> {
        let text = self.zuul("log_url")?.as_str()?;
        let slash = if text.ends_with('/') { "" } else { "/" };
        let url = (text.len() <= LONGEST_URL).then(|| Url::parse(&format!("{text}{slash}")).ok()).flatten()?;
        matches!(url.scheme(), "http" | "https").then_some(url)
    }

    /// `zuul.artifacts`: what the job says it has made. An entry without name and URL is left out. Zuul: a relative URL is
    /// one below `zuul.log_url`.
    pub fn artifacts(&self) -> Vec<Value> {
        let base = self.base();
        let all = self.zuul("artifacts").and_then(Value::as_list).unwrap_or_default();
        all.iter().filter_map(|artifact| located(artifact, base.as_ref())).collect()
    }

    /// `zuul.warnings`: what the job wants people to see beside its result; with what is wrong with them.
    pub fn warnings(&self) -> Vec<String> {
        let Some(value) = self.zuul("warnings") else { return Vec::new() };
        let Some(all) = value.as_list() else { return vec!["zuul.warnings must be a list of texts".to_owned()] };
        let mut warnings: Vec<String> = all
            .iter()
            .take(MOST_WARNINGS)
            .enumerate()
            .map(|(index, warning)| match warning.as_str() {
                Some(text) => shortened(text, LONGEST_WARNING),
                None => format!("zuul.warnings[{index}] must be a text"),
            })
            .collect();
        if let Some(more) = all.len().checked_sub(MOST_WARNINGS + 1) {
            warnings.push(format!("{} more warnings of the job were left out", more + 1));
        }
        warnings
    }

    /// `zuul.file_comments`: remarks on the change's files, by path; and what is wrong with those that are left out.
    /// Zuul: one that is wrong makes it leave out all.
    pub fn file_comments(&self) -> (BTreeMap<String, Vec<FileComment>>, Vec<String>) {
        let (mut comments, mut problems) = (BTreeMap::new(), Vec::new());
        let Some(value) = self.zuul("file_comments") else { return (comments, problems) };
        let Some(files) = value.as_map() else {
            return (comments, vec!["zuul.file_comments must be a mapping of paths to lists of comments".to_owned()]);
        };
        let (mut room, mut too_many) = (MOST_COMMENTS, 0_usize);
        for (path, list) in files {
            let shown = shortened(path, 200);
            let Some(list) = list.as_list() else {
                problems.push(format!("zuul.file_comments of {shown:?} must be a list"));
                continue;
            };
            let kept: &mut Vec<FileComment> = comments.entry(path.clone()).or_default();
            for (index, item) in list.iter().enumerate() {
                if room == 0 {
                    too_many += 1;
                    continue;
                }
                room -= 1;
                match FileComment::read(item) {
                    Ok(comment) => kept.push(comment),
                    Err(why) => problems.push(format!("zuul.file_comments of {shown:?}, number {}: {why}", index + 1)),
                }
            }
        }
        comments.retain(|_, kept| !kept.is_empty());
        if too_many > 0 {
            problems.push(format!("{too_many} more file comments of the job were left out"));
        }
        if let Some(more) = problems.len().checked_sub(MOST_WARNINGS + 1) {
            problems.truncate(MOST_WARNINGS);
            problems.push(format!("{} more problems of file comments are not told", more + 1));
        }
        (comments, problems)
    }

    /// `zuul.disable_file_comment_line_mapping`: the lines of comments are those of the change itself.
    pub fn disables_line_mapping(&self) -> bool {
        self.zuul("disable_file_comment_line_mapping").is_some_and(is_true)
    }

    /// `zuul.redactions`: texts that must not be seen from the next playbook on. Secret.
    pub fn redactions(&self) -> Vec<&str> {
        let all = self.zuul("redactions").and_then(Value::as_list).unwrap_or_default();
        all.iter().filter_map(Value::as_str).filter(|text| !text.is_empty()).collect()
    }

    /// Takes the redactions away. Zuul: nobody needs them after the build, and they would be seen where data is.
    pub(crate) fn without_redactions(mut self) -> Returned {
        for data in [&mut self.data, &mut self.secret_data] {
            if let Value::Map(map) = data
                && let Some(Value::Map(zuul)) = map.get_mut("zuul")
            {
                zuul.remove("redactions");
            }
        }
        self
    }

    /// `zuul.snapshot_nodes`: nodes that are to become images. An entry without node and name is left out.
    pub fn snapshot_nodes(&self) -> Vec<SnapshotNode> {
        let all = self.zuul("snapshot_nodes").and_then(Value::as_list).unwrap_or_default();
        let text = |entry: &Value, key: &str| Some(entry.as_map()?.get(key)?.as_str()?.to_owned());
        all.iter()
            .filter_map(|entry| {
                Some(SnapshotNode { node: text(entry, "node")?, image_name: text(entry, "image_name")? })
            })
            .collect()
    }

    /// What a person should know of what was returned: the job's own warnings, and what cannot be used. Nothing secret.
    pub(crate) fn told(&self) -> Vec<String> {
        let mut told = self.warnings();
        told.extend(self.file_comments().1);
        if self.zuul("log_url").is_some() && self.base().is_none() {
            told.push(
                "zuul.log_url is not used: it must be an address that begins with http:// or https://".to_owned(),
            );
        }
        let texts = |all: &[Value]| all.iter().all(|text| text.as_str().is_some());
        if self.zuul("redactions").is_some_and(|value| !value.as_list().is_some_and(texts)) {
            told.push("zuul.redactions must be a list of texts: what is none is not hidden".to_owned());
        }
        told
    }

    /// `zuul.pause`: the job waits for those that need it before its post-run. Zuul: whatever is true to Python.
    pub fn pauses(&self) -> bool {
        self.zuul("pause").is_some_and(is_true)
    }

    /// `zuul.retry: false`: the job says that trying again would not help.
    pub fn forbids_retry(&self) -> bool {
        self.zuul("retry").and_then(Value::as_bool) == Some(false)
    }
}

/// Whether a value is true to Python.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) => false,
        Value::Str(text) => !text.is_empty(),
        Value::List(items) => !items.is_empty(),
        Value::Map(map) => !map.is_empty(),
        _ => true,
    }
}

/// An artifact with its whole URL.
fn located(artifact: &Value, base: Option<&Url>) -> Option<Value> {
    let map = artifact.as_map()?;
    map.get("name")?.as_str()?;
    let url = map.get("url")?.as_str()?;
    let mut map = map.clone();
    if let Some(base) = base
        && let Err(url::ParseError::RelativeUrlWithoutBase) = Url::parse(url)
        && let Ok(joined) = base.join(url)
    {
        map.insert("url".to_owned(), Value::from(String::from(joined)));
    }
    Some(Value::Map(map))
}

impl FileComment {
    fn read(value: &Value) -> Result<FileComment, String> {
        let map = value.as_map().ok_or("it must be a mapping")?;
        let message = map.get("message").and_then(Value::as_str).ok_or("message must be a text")?;
        let level = match map.get("level").map(|level| (level, level.as_str())) {
            None => None,
            Some((_, Some("info"))) => Some(CommentLevel::Info),
            Some((_, Some("warning"))) => Some(CommentLevel::Warning),
            Some((_, Some("error"))) => Some(CommentLevel::Error),
            Some(_) => return Err("level must be info, warning or error".to_owned()),
        };
        let line = map.get("line").map(|line| number(line, "line")).transpose()?;
        let range = map.get("range").map(CommentRange::read).transpose()?;
        Ok(FileComment { line, message: shortened(message, LONGEST_COMMENT), level, range })
    }
}

impl CommentRange {
    fn read(value: &Value) -> Result<CommentRange, String> {
        let map = value.as_map().ok_or("range must be a mapping")?;
        let get = |key: &str| number(map.get(key).unwrap_or(&Value::Null), key);
        Ok(CommentRange {
            start_line: get("start_line")?,
            start_character: get("start_character")?,
            end_line: get("end_line")?,
            end_character: get("end_character")?,
        })
    }
}

fn number(value: &Value, name: &str) -> Result<u32, String> {
    match value {
        Value::Int(number) => u32::try_from(*number).ok(),
        _ => None,
    }
    .ok_or_else(|| format!("{name} must be a number that is not negative"))
}

/// The beginning of a text that is too long, and how much is missing.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => {
            let (kept, rest) = text.split_at(end);
            format!("{kept} [{} characters more were left out]", rest.chars().count())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returned(zuul: serde_json::Value) -> Returned {
        let data = Value::from_json(&serde_json::json!({"zuul": zuul}));
        Returned { data, secret_data: Value::Null }
    }

    fn urls(zuul: serde_json::Value) -> Vec<String> {
        let text = |artifact: &Value| artifact.as_map().unwrap()["url"].as_str().unwrap().to_owned();
        returned(zuul).artifacts().iter().map(text).collect()
    }

    #[test]
    fn a_relative_url_of_an_artifact_is_one_below_the_log_url() {
        let artifacts = serde_json::json!([
            {"name": "docs", "url": "docs/index.html"},
            {"name": "up", "url": "../other"},
            {"name": "root", "url": "/x"},
            {"name": "image", "url": "docker://registry/app:1", "metadata": {"type": "container_image"}},
            {"name": "no url"},
        ]);
        let with = |url: &str| urls(serde_json::json!({"log_url": url, "artifacts": artifacts}));
        let expected = [
            "https://logs.example.org/1/docs/index.html",
            "https://logs.example.org/other",
            "https://logs.example.org/x",
            "docker://registry/app:1",
        ];
        assert_eq!(with("https://logs.example.org/1"), expected);
        assert_eq!(with("https://logs.example.org/1/"), expected);
        let without = ["docs/index.html", "../other", "/x", "docker://registry/app:1"];
        assert_eq!(urls(serde_json::json!({"artifacts": artifacts})), without);
        assert_eq!(with("javascript:alert(1)"), without);
        assert_eq!(urls(serde_json::json!({"artifacts": "none"})), [""; 0]);
    }

    #[test]
    fn a_log_url_is_an_address_for_a_browser_and_anything_else_is_told() {
        let url = |url: serde_json::Value| {
            let returned = returned(serde_json::json!({"log_url": url}));
            (returned.log_url(), returned.told().len())
        };
        assert_eq!(url("http://logs/1".into()), (Some("http://logs/1/".to_owned()), 0));
        for bad in ["javascript:alert(1)", "logs", "", "ftp://logs/1"] {
            assert_eq!(url(bad.into()), (None, 1), "{bad}");
        }
        assert_eq!(url(7.into()), (None, 1));
        assert_eq!((Returned::default().log_url(), Returned::default().told()), (None, vec![]));
    }

    #[test]
    fn warnings_are_told_as_far_as_there_are_not_too_many_and_the_rest_is_counted() {
        let told = returned(serde_json::json!({"warnings": ["one", 2, "x".repeat(1010)]})).told();
        let long = format!("{} [10 characters more were left out]", "x".repeat(1000));
        assert_eq!(told, ["one", "zuul.warnings[1] must be a text", &long]);
        let many = returned(serde_json::json!({"warnings": vec!["w"; 60]})).told();
        assert_eq!((many.len(), many[50].as_str()), (51, "10 more warnings of the job were left out"));
        assert_eq!(returned(serde_json::json!({"warnings": vec!["w"; 50]})).told().len(), 50);
        assert_eq!(returned(serde_json::json!({"warnings": "w"})).told(), ["zuul.warnings must be a list of texts"]);
    }

    #[test]
    fn file_comments_that_are_wrong_are_named_and_the_others_kept() {
        let range = serde_json::json!({"start_line": 1, "start_character": 0, "end_line": 2, "end_character": 7});
        let returned = returned(serde_json::json!({
            "file_comments": {
                "a.py": [
                    {"line": 3, "message": "unused", "level": "warning"},
                    {"line": -1, "message": "where?"},
                    {"message": "all of it", "range": range},
                    {"line": 1},
                    {"message": "x", "level": "loud"},
                    {"message": "x", "range": {"start_line": 1}},
                    "text",
                ],
                "b.py": "none",
                "/COMMIT_MSG": [{"line": 1, "message": "typo", "level": "error"}],
            },
            "disable_file_comment_line_mapping": true,
        }));
        let (comments, problems) = returned.file_comments();
        let comment = |line, message: &str, level| FileComment { line, message: message.into(), level, range: None };
        let range = CommentRange { start_line: 1, start_character: 0, end_line: 2, end_character: 7 };
        let expected = BTreeMap::from([
            ("/COMMIT_MSG".to_owned(), vec![comment(Some(1), "typo", Some(CommentLevel::Error))]),
            (
                "a.py".to_owned(),
                vec![
                    comment(Some(3), "unused", Some(CommentLevel::Warning)),
                    FileComment { range: Some(range), ..comment(None, "all of it", None) },
                ],
            ),
        ]);
        assert_eq!(comments, expected);
        let expected = [
            "zuul.file_comments of \"a.py\", number 2: line must be a number that is not negative",
            "zuul.file_comments of \"a.py\", number 4: message must be a text",
            "zuul.file_comments of \"a.py\", number 5: level must be info, warning or error",
            "zuul.file_comments of \"a.py\", number 6: start_character must be a number that is not negative",
            "zuul.file_comments of \"a.py\", number 7: it must be a mapping",
            "zuul.file_comments of \"b.py\" must be a list",
        ];
        assert_eq!(problems, expected);
        assert_eq!(returned.told(), expected);
        assert!(returned.disables_line_mapping());

        let many = vec![serde_json::json!({"message": "m"}); MOST_COMMENTS + 5];
        let (kept, problems) = self::returned(serde_json::json!({"file_comments": {"a": many}})).file_comments();
        assert_eq!(
            (kept["a"].len(), problems),
            (1000, vec!["5 more file comments of the job were left out".to_owned()])
        );
    }

    #[test]
    fn redactions_are_there_for_the_build_and_gone_after_it() {
        let returned = returned(serde_json::json!({"redactions": ["hide me", ""], "log_url": "http://l/"}));
        assert_eq!(returned.redactions(), ["hide me"]);
        let after = returned.without_redactions();
        assert_eq!((after.redactions(), after.log_url()), (vec![], Some("http://l/".to_owned())));
        let bad = self::returned(serde_json::json!({"redactions": ["canary", 7]})).told();
        assert!(bad.len() == 1 && !bad[0].contains("canary"), "{bad:?}");
    }

    #[test]
    fn nodes_to_make_images_of_are_those_with_a_node_and_a_name() {
        let nodes = serde_json::json!([{"node": "n1", "image_name": "debian"}, {"node": "n2"}, 3]);
        let expected = SnapshotNode { node: "n1".into(), image_name: "debian".into() };
        assert_eq!(returned(serde_json::json!({"snapshot_nodes": nodes})).snapshot_nodes(), [expected]);
    }

    #[test]
    fn a_job_pauses_where_python_says_so_and_forbids_another_try_only_by_false() {
        let pauses = |value: serde_json::Value| returned(serde_json::json!({"pause": value})).pauses();
        assert!(pauses(true.into()) && pauses("no".into()) && pauses(1.into()));
        assert!(!pauses(false.into()) && !pauses("".into()) && !pauses(0.into()) && !Returned::default().pauses());
        let forbids = |value: serde_json::Value| returned(serde_json::json!({"retry": value})).forbids_retry();
        assert!(forbids(false.into()) && !forbids(0.into()) && !forbids(true.into()));
    }
}
