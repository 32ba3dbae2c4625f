//! What a job leaves in its log directory is kept, and of what is not it says why.

use gatelog_executing::BuildResult;
use gatelog_executing::spec::Phase;
use gatelog_log_files::manifest::{CONSOLE, RESULTS};
use gatelog_log_files::{KeepLimits, LogStore};

use crate::site::{Site, play};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_job_leaves_in_its_log_directory_is_kept_with_its_console_and_results() {
    let place = tempfile::tempdir().unwrap();
    let store = LogStore::directory(place.path(), false).unwrap();
    let with = store.clone();
    let opened = Site::open("logs of jobs", |config| {
        config.log_store = Some(with);
        config.keep_limits = KeepLimits { bytes: 5_000, ..KeepLimits::default() };
    });
    let Some(site) = opened.await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let run = play(
        r#"    - shell: |
        cd {{ zuul.executor.log_root }}
        mkdir -p docs/html
        echo '<p>report</p>' > docs/html/index.html
        echo notes > docs/notes
        head -c 9000 /dev/zero > large.bin
        ln -s /etc/passwd link
        mkfifo pipe
"#,
    );
    let fail = play("    - shell: echo late > {{ zuul.executor.log_root }}/post.log; exit 1\n");
    let config = site.commit("config", &[("run.yaml", &run), ("fail.yaml", &fail)]);
    let spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0), (Phase::Post, "fail.yaml", 0)]);
    let (outcome, text) = site.run(spec.clone()).await;
    assert_eq!(outcome.result, BuildResult::PostFailure, "{text}");
    let manifest = store.manifest(spec.build, 1).await.unwrap().unwrap();
    let paths: Vec<&str> = manifest.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["docs/html/index.html", "docs/notes", RESULTS, CONSOLE, "post.log"], "{text}");
    assert!(!manifest.pending);
    let file = manifest.file("docs/html/index.html").unwrap();
    assert_eq!((file.size, file.mime.as_str()), (14, "text/html; charset=utf-8"));
    assert_eq!(&store.read(file.digest.unwrap(), 14, 0, 100).await.unwrap()[..], b"<p>report</p>\n");
    assert_eq!(manifest.file(CONSOLE).unwrap().size, text.len() as u64);
    for why in [
        r#"WARNING: "large.bin" in the log directory is not kept: with its 9000 bytes there would be more than 5000 bytes"#,
        r#"WARNING: "link" in the log directory is not kept: it is a symbolic link"#,
        r#"WARNING: "pipe" in the log directory is not kept: it is a pipe"#,
        "Kept 3 files of the log directory",
    ] {
        assert!(text.contains(why), "{why}: {text}");
    }
    assert!(outcome.warnings.iter().any(|warning| warning.contains("large.bin")), "{:?}", outcome.warnings);
    let results = site.executor.results(spec.build, 1).unwrap();
    let document = results.read_from(0, 1 << 20).unwrap();
    assert_eq!(document.len() as u64, results.size());
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(document.as_array().unwrap().len(), 2);

    let kept = site.executor.kept().unwrap();
    assert_eq!((kept.len(), kept[0].build, kept[0].attempt), (1, spec.build, 1));
    site.executor.forget(spec.build, 1).unwrap();
    assert!(site.executor.console(spec.build, 1).is_none() && site.executor.kept().unwrap().is_empty());
}
