//! Settings that an operator changes: each counts after a restart.

use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Site, eventually, host};

#[test]
fn links_in_reports_lead_to_the_address_that_is_set_now() {
    if !host::can_build("a new address of a site") {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let settings = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    let mut loaded = Vec::new();
    for (name, root) in [("a", "http://ci-old.test"), ("b", "http://ci-new.test"), ("c", "http://ci-new.test")] {
        site.write("gatelog.toml", &settings.replace("[web]\n", &format!("[web]\nroot = \"{root}\"\n")));
        let server = site.start();
        server.wait_configured();
        site.push("project", name, name, &[(&format!("{name}.txt"), "x")]);
        assert_eq!(server.wait_verdict("check", "project", name), "SUCCESS", "{}", server.log());
        let report = eventually("the report is delivered", || {
            site.reports("project", name).into_iter().find(|report| report.text.contains("/build/"))
        });
        assert!(report.text.contains(&format!("{root}/t/test/build/")), "{root}: {}", report.text);
        server.wait_idle();
        server.stop();
        loaded.push(site.events("intake").iter().filter(|record| record["kind"] == "intake.tenant-file").count());
    }
    assert_eq!(loaded, [1, 2, 2], "tenants are configured anew once for a new address, and not at each start");
}
