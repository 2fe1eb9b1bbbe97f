//! Every row of every table, by its own examples.

#[test]
fn every_table_row_matches_its_examples() {
    let (count, failing) = countersign_policy::failing_examples();
    assert!(count > 500, "{count} examples");
    assert_eq!(failing, Vec::<String>::new());
}
