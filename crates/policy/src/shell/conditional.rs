//! `[[ … ]]`: expands its operands. Some of its tests evaluate them as arithmetic or as names.

use super::{plan_builder::PlanBuilder, state::ShellState};
use brush_parser::ast::{self, BinaryPredicate as Binary, UnaryPredicate as Unary};
use countersign_model::{Opaque, Word};

impl PlanBuilder<'_> {
    /// Collects the operands that are paths.
    pub(super) fn read_test(&mut self, test: &ast::ExtendedTestExpr, state: &mut ShellState, out: &mut Vec<Word>) {
        let mut operand = |builder: &mut Self, word: &ast::Word, path: bool| {
            let at = builder.position_of(word.loc.as_ref());
            let value = builder.expand_value(&word.value, at, state);
            if path {
                out.push(Word { value, quoted: true, many: false, substituted: false, hint: None });
            }
        };
        match test {
            ast::ExtendedTestExpr::And(a, b) | ast::ExtendedTestExpr::Or(a, b) => {
                self.read_test(a, state, out);
                self.read_test(b, state, out);
            }
            ast::ExtendedTestExpr::Not(a) | ast::ExtendedTestExpr::Parenthesized(a) => self.read_test(a, state, out),
            ast::ExtendedTestExpr::UnaryTest(predicate, word) => match predicate {
                Unary::ShellVariableIsSetAndAssigned | Unary::ShellVariableIsSetAndNameRef => {
                    operand(self, word, false);
                    self.mark_opaque(Opaque::EvaluatesArguments);
                }
                Unary::StringHasZeroLength
                | Unary::StringHasNonZeroLength
                | Unary::ShellOptionEnabled
                | Unary::FdIsOpenTerminal => operand(self, word, false),
                Unary::FileExists
                | Unary::FileExistsAndIsBlockSpecialFile
                | Unary::FileExistsAndIsCharSpecialFile
                | Unary::FileExistsAndIsDir
                | Unary::FileExistsAndIsRegularFile
                | Unary::FileExistsAndIsSetgid
                | Unary::FileExistsAndIsSymlink
                | Unary::FileExistsAndHasStickyBit
                | Unary::FileExistsAndIsFifo
                | Unary::FileExistsAndIsReadable
                | Unary::FileExistsAndIsNotZeroLength
                | Unary::FileExistsAndIsSetuid
                | Unary::FileExistsAndIsWritable
                | Unary::FileExistsAndIsExecutable
                | Unary::FileExistsAndOwnedByEffectiveGroupId
                | Unary::FileExistsAndModifiedSinceLastRead
                | Unary::FileExistsAndOwnedByEffectiveUserId
                | Unary::FileExistsAndIsSocket => operand(self, word, true),
            },
            ast::ExtendedTestExpr::BinaryTest(predicate, left, right) => match predicate {
                Binary::ArithmeticEqualTo
                | Binary::ArithmeticNotEqualTo
                | Binary::ArithmeticLessThan
                | Binary::ArithmeticLessThanOrEqualTo
                | Binary::ArithmeticGreaterThan
                | Binary::ArithmeticGreaterThanOrEqualTo => {
                    operand(self, left, false);
                    operand(self, right, false);
                    let number = |w: &ast::Word| w.value.parse::<i64>().is_ok();
                    if !(number(left) && number(right)) {
                        self.mark_opaque(Opaque::EvaluatesArguments);
                    }
                }
                Binary::FilesReferToSameDeviceAndInodeNumbers
                | Binary::LeftFileIsNewerOrExistsWhenRightDoesNot
                | Binary::LeftFileIsOlderOrDoesNotExistWhenRightDoes => {
                    operand(self, left, true);
                    operand(self, right, true);
                }
                Binary::StringExactlyMatchesPattern
                | Binary::StringDoesNotExactlyMatchPattern
                | Binary::StringMatchesRegex
                | Binary::StringExactlyMatchesString
                | Binary::StringDoesNotExactlyMatchString
                | Binary::StringContainsSubstring
                | Binary::LeftSortsBeforeRight
                | Binary::LeftSortsAfterRight => {
                    operand(self, left, false);
                    operand(self, right, false);
                }
            },
        }
    }
}
