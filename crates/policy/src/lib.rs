//! `read(request) → plan`, then `judge(plan, facts, context) → assessment`. Pure and total: the caller supplies the
//! facts, nothing here looks at the world.
//!
//! This is the first cut: argv is one literal occurrence, shell text one opaque occurrence. The shape is the lasting
//! one; a real shell parser, grants and risk tables take the place of what is inside.

mod judge;
mod read;

pub use judge::{Context, judge};
pub use read::read;
