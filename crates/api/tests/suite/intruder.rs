//! Every way in that is no way in, for every route of the document.

use asterism_api::testing::intruder;

#[test]
fn no_intruder_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let report = intruder(folder.path()).unwrap();
    assert_eq!(report.succeeded, Vec::<String>::new());
    assert!(report.routes >= 16, "{report:?}");
    assert!(report.cases_of_a_route_min >= 15, "{report:?}");
    assert!(report.cases >= 16 * report.routes, "{report:?}");
}
