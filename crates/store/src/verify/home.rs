//! Whether receipts are those of this home: each that names a home names this one, and once the ledger has named it every
//! receipt does.

use super::{
    LISTED, VerifyReport,
    receipt_chain::{CheckedReceipt, ReceiptsByTask},
};
use crate::ledger::{LedgerError, LedgerReader};
use countersign_model::HomeId;

/// Against the ledger that they are in.
pub(super) fn check(
    ledger: &LedgerReader,
    rows: &ReceiptsByTask,
    report: &mut VerifyReport,
) -> Result<(), LedgerError> {
    let named = ledger.homes_named(LISTED as u32)?;
    for (n, other) in named.iter().skip(1) {
        report.find(format!("decision {n}"), format!("names the home a second time, as {other}"));
    }
    let ours = named.first().copied();
    report.home_id = ours.map(|(_, home)| home);
    let mut wrong: Vec<(u64, String, String)> = Vec::new();
    for checked in rows.good.values() {
        let what = match (checked.home, ours) {
            (Some(home), Some((_, ours))) if home != ours => format!("is a receipt of home {home}; this one is {ours}"),
            (Some(home), None) => format!("is a receipt of home {home}; no decision of this ledger names that home"),
            (None, Some((n, ours))) if checked.ledger_head.decision.0 >= n.unsigned_abs() => {
                format!("names no home, and decision {n} before it had named {ours}")
            }
            _ => continue,
        };
        wrong.push((checked.number, checked.place(), what));
    }
    wrong.sort_unstable();
    let more = wrong.len().saturating_sub(LISTED);
    for (_, place, what) in wrong.into_iter().take(LISTED) {
        report.find(place, what);
    }
    if more > 0 {
        report.find("receipts", format!("{more} more are not of this home"));
    }
    Ok(())
}

/// A row of receipts without its ledger: once one has named a home, those behind it name the same.
pub(super) fn check_row(row: &[CheckedReceipt], report: &mut VerifyReport) {
    let mut home: Option<HomeId> = None;
    for checked in row {
        match (home, checked.home) {
            (Some(before), Some(named)) if named != before => {
                report.find(checked.place(), format!("is a receipt of home {named}; those before it are of {before}"));
            }
            (Some(before), None) => {
                report.find(checked.place(), format!("names no home; those before it name {before}"));
            }
            (_, named) => home = home.or(named),
        }
    }
    report.home_id = home;
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_model::{DecimalCount, Digest, LedgerHead};

    const OURS: &str = "hm_01jcx3v9q8k2m4tz";
    const OTHER: &str = "hm_01jcx3v9q8k2m4t0";

    fn receipt(number: u64, home: Option<&str>) -> CheckedReceipt {
        let digest = Digest::sha256(&[]);
        let ledger_head = LedgerHead { decision: DecimalCount(number), sha256: digest };
        let task = "tk_01jcx3v9q8k2m4ty".parse().unwrap();
        let home = home.map(|home| home.parse().unwrap());
        CheckedReceipt::bare(number, task, home, ledger_head)
    }

    fn check(homes: &[Option<&str>], expected: &[&str]) {
        let row: Vec<CheckedReceipt> = (1..).zip(homes).map(|(number, home)| receipt(number, *home)).collect();
        let mut report = VerifyReport::default();
        check_row(&row, &mut report);
        let found: Vec<String> = report.findings.into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, expected, "{homes:?}");
    }

    #[test]
    fn once_a_home_is_named_every_receipt_names_it() {
        check(&[None, None], &[]);
        check(&[None, Some(OURS), Some(OURS)], &[]);
        check(&[Some(OURS), None], &[&format!("names no home; those before it name {OURS}")]);
        let another = format!("is a receipt of home {OTHER}; those before it are of {OURS}");
        check(&[None, Some(OURS), Some(OTHER), Some(OURS)], &[&another]);
    }
}
