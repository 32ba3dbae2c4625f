use std::collections::BTreeSet;

use super::keys::KEYS;
use super::*;

/// Every section there is, with the least that it can be written with; of `connection` and `auth` one by any name.
const SECTIONS: &[(&str, &str)] = &[
    ("", ""),
    ("connection.*", "driver = \"git\"\ncanonical-hostname = \"h\"\n"),
    ("auth.*", ""),
    ("web", ""),
    ("scheduler", ""),
    ("executor", ""),
    ("job-logs", ""),
    ("job-logs.s3", ""),
    ("log", ""),
    ("log.kafka", ""),
    ("shared", ""),
    ("oidc", ""),
    ("audit", ""),
    ("stop", ""),
];

/// The keys of a section, as the reader of the file names them to who wrote one that is none.
fn keys_of(section: &str, least: &str) -> Vec<String> {
    let head = if section.is_empty() { String::new() } else { format!("[{}]\n", section.replace('*', "x")) };
    let error = toml::from_str::<SiteConfig>(&format!("{head}{least}not-a-key = 1\n")).unwrap_err().to_string();
    let known =
        error.split_once("unknown field `not-a-key`, expected ").unwrap_or_else(|| panic!("{section}: {error}")).1;
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn of_every_key_it_is_known_what_a_change_comes_to() {
    let told: BTreeSet<&str> = KEYS.iter().map(|(key, _)| *key).collect();
    let sections: BTreeSet<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
    let mut all = BTreeSet::new();
    for (section, least) in SECTIONS {
        for key in keys_of(section, least) {
            let path = if section.is_empty() { key } else { format!("{section}.{key}") };
            if !sections.contains(path.as_str()) && !sections.contains(format!("{path}.*").as_str()) {
                all.insert(path);
            }
        }
    }
    // The tag of a connection is no field, and settings of librdkafka have names of their own.
    all.insert("connection.*.driver".to_owned());
    assert!(all.remove("log.kafka.properties"));
    all.insert("log.kafka.properties.*".to_owned());
    let all: BTreeSet<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(all.difference(&told).collect::<Vec<_>>(), Vec::<&&str>::new(), "add them to settings/keys.rs");
    assert_eq!(told.difference(&all).collect::<Vec<_>>(), Vec::<&&str>::new(), "no longer keys of gatelog.toml");
}

struct Made {
    dir: tempfile::TempDir,
}

impl Made {
    fn new(first: &str) -> Made {
        let made = Made { dir: tempfile::tempdir().unwrap() };
        made.write(first);
        Settings::of_file(made.path()).unwrap().keep(made.path()).unwrap();
        made
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path().join(config::FILE), text).unwrap();
    }

    /// The changes to these settings, and whether `serve` refuses them.
    fn to(&self, text: &str) -> (Vec<Change>, Result<(), String>) {
        self.write(text);
        let (now, config) = (Settings::of_file(self.path()).unwrap(), SiteConfig::read(self.path()).unwrap());
        let started = at_start(self.path(), &now, &config).map_err(|refused| refused.to_string());
        (changes(self.path(), &now, &config), started)
    }
}

const ONE: &str = "[connection.forge]\ndriver = \"git\"\nroot = \"forge\"\ncanonical-hostname = \"git.test\"\n";

#[test]
fn what_counts_is_told_with_old_and_new_and_nothing_is_where_nothing_changed() {
    let site = Made::new("[executor]\nslots = 2\n");
    assert_eq!(site.to("[executor]\nslots = 2\n"), (vec![], Ok(())));
    let (changes, started) = site.to("[executor]\nslots = 4\n[job-logs]\nkeep-days = 3\n");
    let told: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(told[0], "executor.slots: was 2, is 4");
    assert!(told[1].starts_with("job-logs.keep-days: was not set, is 3; what is older is removed"), "{told:?}");
    assert_eq!(started, Ok(()));
}

#[test]
fn what_cannot_change_is_refused_with_key_values_and_the_way() {
    std::fs::create_dir_all(Made::new(ONE).path()).unwrap();
    let kafka = |prefix: &str| {
        format!("[shared]\ndir = \"shared\"\n[log.kafka]\nbrokers = \"b:9092\"\nprefix = \"{prefix}\"\n")
    };
    for (before, after, key, way) in [
        (
            ONE.to_owned(),
            ONE.replace("git.test", "git.new"),
            "connection.forge.canonical-hostname: was \"git.test\", is \"git.new\"",
            "make another connection",
        ),
        (
            ONE.to_owned(),
            ONE.replace("[connection.forge]", "[connection.code]"),
            "connection.forge: was forge, is code",
            "call it forge again",
        ),
        (
            ONE.to_owned(),
            ONE.replace("\"forge\"", "\"elsewhere\""),
            "connection.forge.root: was \"forge\", is \"elsewhere\"",
            "move the repositories",
        ),
        (String::new(), kafka("ci."), "log.kafka: was in the site's directory, is on Apache Kafka", "begin a new site"),
        (
            kafka("ci."),
            String::new(),
            "log.kafka: was on Apache Kafka, is in the site's directory",
            "put [log.kafka] back",
        ),
        (kafka("ci."), kafka("other."), "log.kafka.prefix: was \"ci.\", is \"other.\"", "topics"),
    ] {
        let site = Made::new(&before);
        let (_, started) = site.to(&after);
        let refused = started.unwrap_err();
        assert!(refused.contains(key) && refused.contains(way), "{refused}");
        // What was there before goes on.
        assert_eq!(site.to(&before).1, Ok(()));
    }
}

#[test]
fn a_log_that_is_not_where_projections_say_is_missed() {
    let site = Made::new("");
    std::fs::create_dir_all(site.path().join("projections/gate-0")).unwrap();
    std::fs::create_dir_all(site.path().join("log")).unwrap();
    std::fs::write(site.path().join("log/HEADER"), "").unwrap();
    assert_eq!(site.to("").1, Ok(()));
    std::fs::rename(site.path().join("log"), site.path().join("moved")).unwrap();
    let refused = site.to("").1.unwrap_err();
    assert!(refused.contains("put it back there"), "{refused}");
}

#[test]
fn keys_and_blobs_must_have_been_moved_to_a_shared_directory() {
    let site = Made::new("");
    std::fs::create_dir_all(site.path().join("keys/signing")).unwrap();
    let shared = "[shared]\ndir = \"shared\"\n";
    let refused = site.to(shared).1.unwrap_err();
    assert!(refused.contains("shared.dir: was not set") && refused.contains("stop every process, move"), "{refused}");
    std::fs::create_dir_all(site.path().join("shared")).unwrap();
    std::fs::rename(site.path().join("keys"), site.path().join("shared/keys")).unwrap();
    assert_eq!(site.to(shared).1, Ok(()));
}

#[test]
fn secrets_are_not_kept_and_a_new_one_is_noticed() {
    let auth = |secret: &str| {
        format!(
            "[auth.ops]\ndriver = \"HS256\"\nissuer-id = \"i\"\nclient-id = \"c\"\nsecret = \"{secret}-long-enough-to-be-one-of-32\"\n"
        )
    };
    let site = Made::new(&auth("first"));
    assert!(!std::fs::read_to_string(site.path().join(FILE)).unwrap().contains("first"));
    let (changes, started) = site.to(&auth("second"));
    assert_eq!((changes.len(), started), (1, Ok(())));
    assert!(changes[0].key == "auth.ops.secret" && !changes[0].to_string().contains("second"));
}

#[test]
fn what_kafka_is_told_is_kept_from_others_too() {
    let site = tempfile::tempdir().unwrap();
    let properties = "[log.kafka.properties]\n\"ssl.key.pem\" = \"BEGIN KEY\"\n\"sasl.password\" = \"open sesame\"\n";
    std::fs::write(site.path().join(config::FILE), properties).unwrap();
    Settings::of_file(site.path()).unwrap().keep(site.path()).unwrap();
    let kept = site.path().join(FILE);
    let text = std::fs::read_to_string(&kept).unwrap();
    assert!(text.contains("ssl.key.pem") && !text.contains("BEGIN") && !text.contains("sesame"), "{text}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&kept).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}
