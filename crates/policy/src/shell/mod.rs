//! Reads shell text with bash's grammar: every command in it, with what is known about its words and its directory.
//! Text that cannot be read is opaque; nothing is guessed by regular expressions.

mod assigned_variables;
mod braces;
mod command_parts;
mod conditional;
mod expand;
mod lex;
mod listing;
mod nested_commands;
mod plan_builder;
mod simple_command;
mod state;
mod token;
mod wrappers;

pub(crate) use nested_commands::runs_scripts;
pub(crate) use plan_builder::PlanBuilder;
pub(crate) use simple_command::{
    is_bash_variable, is_inert_variable, keeps_characters, mutates_bash, splits_characters,
};
pub(crate) use state::unescape_glob;

/// The first character that is invisible, or that reorders the text on screen.
#[must_use]
pub fn find_invisible_char(text: &str) -> Option<char> {
    text.chars().find(|c| {
        matches!(c,
            '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
            | '\u{ad}' | '\u{61c}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{3164}' | '\u{ffa0}' | '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}'
            | '\u{205f}' | '\u{3000}' | '\u{e0000}'..='\u{e0fff}')
    })
}
