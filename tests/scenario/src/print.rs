//! An observation as text: one fact a line, easy to read in a difference; and how two differ.

use serde_json::Value as Json;

/// One fact a line.
pub fn canonical(observation: &Json) -> String {
    let mut lines = vec!["{".to_owned()];
    let entries: Vec<(&String, &Json)> = observation.as_object().into_iter().flatten().collect();
    for (at, (key, value)) in entries.iter().enumerate() {
        let comma = if at + 1 < entries.len() { "," } else { "" };
        match value {
            Json::Array(items) if !items.is_empty() => {
                lines.push(format!(" {key:?}: ["));
                for (index, item) in items.iter().enumerate() {
                    let comma = if index + 1 < items.len() { "," } else { "" };
                    let text = if key.as_str() == "snapshots" { snapshot(item) } else { format!("  {}", one(item)) };
                    lines.push(format!("{text}{comma}"));
                }
                lines.push(format!(" ]{comma}"));
            }
            Json::Object(map) if !map.is_empty() => {
                lines.push(format!(" {key:?}: {{"));
                let inner: Vec<String> =
                    map.iter().map(|(name, value)| format!("  {name:?}: {}", one(value))).collect();
                lines.push(inner.join(",\n"));
                lines.push(format!(" }}{comma}"));
            }
            other => lines.push(format!(" {key:?}: {}{comma}", one(other))),
        }
    }
    lines.push("}\n".into());
    lines.join("\n")
}

/// JSON with a space after commas and colons.
fn one(value: &Json) -> String {
    match value {
        Json::Array(items) => format!("[{}]", items.iter().map(one).collect::<Vec<_>>().join(", ")),
        Json::Object(map) => {
            let inner = map.iter().map(|(key, value)| format!("{}: {}", Json::from(key.as_str()), one(value)));
            format!("{{{}}}", inner.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn snapshot(snapshot: &Json) -> String {
    let mut pipelines = Vec::new();
    for (name, queues) in snapshot["pipelines"].as_object().into_iter().flatten() {
        let mut texts = Vec::new();
        for queue in queues.as_array().into_iter().flatten() {
            let mut head = String::new();
            for (key, value) in queue.as_object().into_iter().flatten().filter(|(key, _)| *key != "items") {
                head.push_str(&format!("{key:?}: {}, ", one(value)));
            }
            let items = queue["items"].as_array().into_iter().flatten().map(|item| format!("      {}", one(item)));
            texts.push(format!("     {{{head}\"items\": [\n{}]}}", items.collect::<Vec<_>>().join(",\n")));
        }
        pipelines.push(format!("    {name:?}: [\n{}]", texts.join(",\n")));
    }
    let (label, step) = (one(&snapshot["label"]), one(&snapshot["step"]));
    format!("  {{\"label\": {label}, \"step\": {step}, \"pipelines\": {{\n{}}}}}", pipelines.join(",\n"))
}

/// The lines in which two texts differ, with `-` for what was expected and `+` for what is.
pub fn difference(expected: &str, found: &str) -> Vec<String> {
    let (one, two): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    // The longest common lines; observations are short.
    let mut longest = vec![vec![0_u32; two.len() + 1]; one.len() + 1];
    for (i, left) in one.iter().enumerate().rev() {
        for (j, right) in two.iter().enumerate().rev() {
            longest[i][j] = match left == right {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < one.len() || j < two.len() {
        if i < one.len() && j < two.len() && one[i] == two[j] {
            i += 1;
            j += 1;
        } else if j >= two.len() || (i < one.len() && longest[i + 1][j] >= longest[i][j + 1]) {
            lines.push(format!("-{}", one[i]));
            i += 1;
        } else {
            lines.push(format!("+{}", two[j]));
            j += 1;
        }
    }
    lines
}
