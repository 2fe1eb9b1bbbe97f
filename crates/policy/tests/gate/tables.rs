//! Every row of every table, by its own examples.

#[test]
fn every_row_matches_what_it_says_and_nothing_else() {
    let (count, failing) = countersign_policy::failing_examples();
    assert!(count > 500, "{count} examples");
    assert_eq!(failing, Vec::<String>::new());
}
