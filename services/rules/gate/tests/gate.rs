//! Scenarios in the words of a user, played through the gate's rules in a small simulated world.
//!
//! Each file in `scenarios` is one story and one test. After every input the world checks what must
//! always hold (`world::laws`). `random` makes stories up.

mod random;
mod world;

macro_rules! scenarios {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            match world::script::play(include_str!(concat!("scenarios/", stringify!($name), ".txt"))) {
                Ok(shown) => print!("{shown}"),
                Err(problem) => panic!("it did not go as told: {problem}"),
            }
        }
    )*};
}

scenarios! {
    first_light check_failure config_first own_config config_project dynamic repository_vanishes no_jobs no_jobs_ahead parent_enqueued trigger_requires gate_of_four
    failing_head conflict conflict_in_check windows window_kept base_moved new_patchset depends_on_check
    depends_on_gate failed_dependency_again supersede admin post restart gone job_graph skipped_voting semaphores
    retries twice early_failure results shared_ref static_until_merged topics limits intake reporter_jobs autohold
    autohold_which semaphore_circle circle serial supercedent promote fail_fast hold_following pause artifacts
    disabled trigger_order facts_fail reports_fail silent_workers nonsense warnings artifact_stands facts_asked
    reconfigure reporter_alone alternatives resources_first not_submitted tags serial_needs requirements_asked
    one_build dequeue_told semaphore_order circle_moves found_behind late_answers moves_on circle_parts new_layout
    who_is_first one_at_most pipeline_gone needs_told needs_later superseded_at_once line_abandoned told_of_leaving
    on_its_way remarks serial_circle parameters circle_merged_in_part circle_files
    gated_again resources_given_back queue_asked_first project_merged no_one_asks_for_merges too_many_set_off
    too_many_in_project layout_asked_again beside beside_at_most announced
    window_left conflict_outside independent_merges promote_whole freed_by_leaving freed_by_patchset needs_in_order
    circle_ahead no_part_told own_part_told needed_by_both needs_twice
    stands_on_older kept_patchset made_anew_as_it_merges timers no_room
}

// What mutants of the rules got away with before (see `mutants.md`).
scenarios! {
    autohold_limits behind_at_most behind_the_pins circle_ends circle_told configuration_awaited files_told
    first_defined freed_ahead freed_where given_up_waiting gone_circle job_of_each jobs_at_most layout_in_force
    layout_once layouts_shared needs_at_most needs_elsewhere needs_left needs_limits no_part nodes_cannot_be_had
    one_build_each process_restarts promote_alone promote_behind promote_circle promote_merging promote_queues
    promote_which reads_overtaken secrets_told stands_on stands_on_order superseded_by_ref taken_meanwhile
    too_many_told waits_since waits_told which_pipeline_merges who_asks who_needs_it window_without_limit
    returned_kept without_configuration works_in_progress needs_news needs_edited topic_kept circle_of_three whose_error line_goes_on
    nothing_new turned_away_where conflict_known conflict_down_the_line needs_two needs_over_limit behind_one_at_most
    artifact_paused line_reporting left_the_site parent_checked
    parent_unnamed config_known needs_later_superseded superseded_abandoned reporter_silently circle_apart
    conflict_overtakes window_prepared window_begun window_behind_layout behind_what_merges tried_before too_many_behind withdrawn_while_merging
}

// What stands in a queue only because it is needed.
scenarios! {
    looked_through looked_through_once looked_through_which
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test that holds its own list against its folder")]
fn every_story_is_played() {
    let named: std::collections::BTreeSet<&str> = include_str!("gate.rs").split_whitespace().collect();
    let stories = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios")).unwrap();
    let stories = stories.map(|entry| entry.unwrap().path());
    let left: Vec<_> = stories.filter(|path| !named.contains(path.file_stem().unwrap().to_str().unwrap())).collect();
    assert!(left.is_empty(), "name them above: {left:?}");
}
