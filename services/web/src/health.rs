//! How the site is.

use gatelog_runner::{Health, Published};
use serde_json::{Value as Json, json};

use crate::reading::App;
use crate::site::PartHealth;

/// The document, and whether all is well.
pub(crate) fn document(app: &App) -> (bool, Json) {
    let mut parts = vec![fold("fold gate/0", &app.site.gate_fold), fold("fold capacity/0", &app.site.capacity_fold)];
    parts.extend(app.site.health.parts());
    let well = parts.iter().all(|part| part.well);
    let positions = json!({
        "gate/0": app.site.gate_fold.position().sequence,
        "capacity/0": app.site.capacity_fold.position().sequence,
    });
    let parts: Vec<Json> = parts
        .into_iter()
        .map(|part| json!({ "part": part.part, "well": part.well, "state": part.state, "detail": part.detail }))
        .collect();
    let state = if well { "well" } else { "unwell" };
    (well, json!({ "state": state, "version": app.site.version, "positions": positions, "parts": parts }))
}

fn fold(part: &str, published: &Published) -> PartHealth {
    let (well, state, detail) = match published.health() {
        Health::CatchingUp => (true, "catching-up", String::new()),
        Health::Following => (true, "following", String::new()),
        Health::Stopped(error) => (false, "stopped", error.to_string()),
        Health::Ended => (false, "ended", "gatelog is going down".to_owned()),
    };
    PartHealth { part: part.to_owned(), well, state: state.to_owned(), detail }
}
