//! A YAML document as a tree with positions. A text that two parsers could read differently is refused.

use super::entry::SERVER_NAME;
use crate::EditError;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

#[derive(Debug, Clone)]
pub(super) enum YamlKind {
    Scalar { text: String, plain: bool },
    Seq(Vec<YamlNode>),
    Map(Vec<(YamlNode, YamlNode)>),
    Alias(usize),
}

#[derive(Debug, Clone)]
pub(super) struct YamlNode {
    pub(super) kind: YamlKind,
    pub(super) flow: bool,
    /// It has an anchor or a tag, or is an alias.
    pub(super) anchored: bool,
    pub(super) line: usize,
    pub(super) col: usize,
    pub(super) end_line: usize,
    pub(super) end_col: usize,
}

impl YamlNode {
    pub(super) fn is_scalar(&self, key: &str) -> bool {
        matches!(&self.kind, YamlKind::Scalar { text, .. } if text == key)
    }

    pub(super) fn get(&self, key: &str) -> Option<(&YamlNode, &YamlNode)> {
        let YamlKind::Map(pairs) = &self.kind else { return None };
        pairs.iter().find(|(k, _)| k.is_scalar(key)).map(|(k, v)| (k, v))
    }

    pub(super) fn scalar(&self) -> Option<&str> {
        match &self.kind {
            YamlKind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The last line of its content.
    pub(super) fn last_line(&self) -> usize {
        match &self.kind {
            YamlKind::Map(pairs) if !self.flow => {
                pairs.last().map_or(self.line, |(k, v)| v.last_line().max(k.end_line))
            }
            YamlKind::Seq(items) if !self.flow => items.last().map_or(self.line, YamlNode::last_line),
            // A block scalar ends where the next node begins.
            YamlKind::Scalar { .. } if self.end_line > self.line && self.end_col == 0 => self.end_line - 1,
            _ => self.end_line,
        }
    }

    /// Lists all values below it, without our entry and without a table that contains nothing else.
    pub(super) fn list_values(&self, values: &mut Vec<String>, path: &mut Vec<String>, table: &str) {
        match &self.kind {
            YamlKind::Scalar { text, plain } => values.push(format!("{} = {text:?} {plain}", path.join("\u{1}"))),
            YamlKind::Alias(to) => values.push(format!("{} = *{to}", path.join("\u{1}"))),
            YamlKind::Seq(items) => {
                for (at, item) in items.iter().enumerate() {
                    path.push(at.to_string());
                    item.list_values(values, path, table);
                    path.pop();
                }
            }
            YamlKind::Map(pairs) => {
                for (key, value) in pairs {
                    let name = key.scalar().map_or_else(|| format!("{key:?}"), str::to_owned);
                    let ours = matches!(path.as_slice(), [one] if one == table) && name == SERVER_NAME;
                    let empty = path.is_empty()
                        && name == table
                        && matches!(&value.kind, YamlKind::Scalar { text, .. } if matches!(text.as_str(), "" | "~" | "null"));
                    if ours || empty {
                        continue;
                    }
                    path.push(name);
                    value.list_values(values, path, table);
                    path.pop();
                }
            }
        }
    }
}

/// The document of a text; none if the text has no content.
pub(super) fn parse_document(text: &str) -> Result<Option<YamlNode>, EditError> {
    let mut events = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| EditError::Invalid { format: "YAML", reason: e.to_string() })?;
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Nothing => {}
            other => events.push((other, span)),
        }
    }
    if events.iter().filter(|(e, _)| matches!(e, Event::DocumentStart(_))).count() > 1 {
        return Err(EditError::SeveralDocuments);
    }
    let mut events = events.into_iter().filter(|(e, _)| !matches!(e, Event::DocumentStart(_)));
    let Some(first) = events.next() else { return Ok(None) };
    let tree = build_node(&LinePositions::new(text), first, &mut events, 0)?;
    let is_empty = matches!(&tree.kind, YamlKind::Scalar { text, plain: true } if text.is_empty());
    if !is_empty || tree.anchored {
        return Ok(Some(tree));
    }
    // A document that consists of nothing but its start mark.
    if text.lines().any(|l| l.starts_with("---")) {
        return Err(EditError::EmptyDocument);
    }
    Ok(None)
}

/// Deeper nodes are refused: the tree is built recursively.
const MAX_DEPTH: usize = 128;

fn build_node<'e>(
    lines: &LinePositions<'_>,
    (event, span): (Event<'e>, Span),
    rest: &mut impl Iterator<Item = (Event<'e>, Span)>,
    depth: usize,
) -> Result<YamlNode, EditError> {
    let ends_early = || EditError::Invalid { format: "YAML", reason: "the document ends too early".to_owned() };
    if depth > MAX_DEPTH {
        return Err(EditError::TooDeep);
    }
    let opens = |c| lines.char_at(span.start.line(), span.start.col()) == Some(c);
    let (flow, anchored) = match &event {
        Event::MappingStart(anchor, tag) => (opens('{'), *anchor > 0 || tag.is_some()),
        Event::SequenceStart(anchor, tag) => (opens('['), *anchor > 0 || tag.is_some()),
        Event::Scalar(_, _, anchor, tag) => (false, *anchor > 0 || tag.is_some()),
        _ => (false, true),
    };
    let mut end = span.end;
    let kind = match event {
        Event::Scalar(text, style, ..) => {
            YamlKind::Scalar { text: text.into_owned(), plain: matches!(style, ScalarStyle::Plain) }
        }
        Event::Alias(to) => YamlKind::Alias(to),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            loop {
                match rest.next().ok_or_else(ends_early)? {
                    (Event::SequenceEnd, span) => break end = span.end,
                    other => items.push(build_node(lines, other, rest, depth + 1)?),
                }
            }
            YamlKind::Seq(items)
        }
        Event::MappingStart(..) => {
            let mut pairs: Vec<(YamlNode, YamlNode)> = Vec::new();
            loop {
                let key = match rest.next().ok_or_else(ends_early)? {
                    (Event::MappingEnd, span) => break end = span.end,
                    other => build_node(lines, other, rest, depth + 1)?,
                };
                if let Some(name) = key.scalar().filter(|n| *n != "<<" && pairs.iter().any(|(k, _)| k.is_scalar(n))) {
                    return Err(EditError::DuplicateKey { line: key.line, key: name.to_owned() });
                }
                let value = rest.next().ok_or_else(ends_early)?;
                pairs.push((key, build_node(lines, value, rest, depth + 1)?));
            }
            YamlKind::Map(pairs)
        }
        _ => return Err(ends_early()),
    };
    let (line, col) = (span.start.line(), span.start.col());
    Ok(YamlNode { kind, flow, anchored, line, col, end_line: end.line(), end_col: end.col() })
}

/// Converts positions of the parser, by line (from 1) and column (in characters, from 0), to byte offsets.
pub(super) struct LinePositions<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> LinePositions<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let starts = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    pub(super) fn line_start(&self, line: usize) -> usize {
        self.starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len())
    }

    pub(super) fn offset_of(&self, line: usize, col: usize) -> usize {
        let start = self.line_start(line);
        self.text[start..].char_indices().nth(col).map_or(self.text.len(), |(at, _)| start + at)
    }

    fn char_at(&self, line: usize, col: usize) -> Option<char> {
        self.text[self.offset_of(line, col)..].chars().next()
    }
}
