//! Checks that receipts belong to this home: each receipt that names a home names this one, and after the ledger has
//! named the home, every receipt does.

use super::{
    MAX_LISTED_FINDINGS, VerifyReport,
    receipt_chain::{CheckedReceipt, ReceiptsByTask},
};
use crate::ledger::{LedgerError, LedgerReader};
use countersign_model::HomeId;

/// Checks the receipts against their ledger.
pub(super) fn check(
    ledger: &LedgerReader,
    receipts: &ReceiptsByTask,
    report: &mut VerifyReport,
) -> Result<(), LedgerError> {
    let named = ledger.named_homes(MAX_LISTED_FINDINGS as u32)?;
    for (n, other) in named.iter().skip(1) {
        report.add_finding(format!("decision {n}"), format!("names the home a second time, as {other}"));
    }
    let ours = named.first().copied();
    report.home_id = ours.map(|(_, home)| home);
    let mut wrong: Vec<(u64, String, String)> = Vec::new();
    for checked in receipts.good.values() {
        let what = match (checked.home, ours) {
            (Some(home), Some((_, ours))) if home != ours => format!("belongs to home {home}; this home is {ours}"),
            (Some(home), None) => format!("belongs to home {home}, which no decision of this ledger names"),
            (None, Some((n, ours))) if checked.ledger_head.decision.0 >= n.unsigned_abs() => {
                format!("names no home, although decision {n} had already named {ours}")
            }
            _ => continue,
        };
        wrong.push((checked.number, checked.place(), what));
    }
    wrong.sort_unstable();
    let more = wrong.len().saturating_sub(MAX_LISTED_FINDINGS);
    for (_, place, what) in wrong.into_iter().take(MAX_LISTED_FINDINGS) {
        report.add_finding(place, what);
    }
    if more > 0 {
        let belong = if more == 1 { "receipt does" } else { "receipts do" };
        report.add_finding("receipts", format!("{more} more {belong} not belong to this home"));
    }
    Ok(())
}

/// Checks a receipt chain without its ledger: after one receipt has named a home, all later ones name the same.
pub(super) fn check_chain(chain: &[CheckedReceipt], report: &mut VerifyReport) {
    let mut home: Option<HomeId> = None;
    for checked in chain {
        match (home, checked.home) {
            (Some(before), Some(named)) if named != before => {
                report.add_finding(
                    checked.place(),
                    format!("belongs to home {named}; earlier receipts belong to {before}"),
                );
            }
            (Some(before), None) => {
                report.add_finding(checked.place(), format!("names no home; earlier receipts name {before}"));
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
        CheckedReceipt::for_test(number, task, home, ledger_head)
    }

    fn check(homes: &[Option<&str>], expected: &[&str]) {
        let chain: Vec<CheckedReceipt> = (1..).zip(homes).map(|(number, home)| receipt(number, *home)).collect();
        let mut report = VerifyReport::default();
        check_chain(&chain, &mut report);
        let found: Vec<String> = report.findings.into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, expected, "{homes:?}");
    }

    #[test]
    fn after_a_home_is_named_every_receipt_names_it() {
        check(&[None, None], &[]);
        check(&[None, Some(OURS), Some(OURS)], &[]);
        check(&[Some(OURS), None], &[&format!("names no home; earlier receipts name {OURS}")]);
        let another = format!("belongs to home {OTHER}; earlier receipts belong to {OURS}");
        check(&[None, Some(OURS), Some(OTHER), Some(OURS)], &[&another]);
    }
}
