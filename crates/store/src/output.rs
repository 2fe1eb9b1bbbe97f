//! Output files: bytes are stored once, can be read by range while they grow, and every chunk is checked against its
//! digest.

use countersign_model::{Clean, Digest, Frame, Record, RecordContent, StreamName, StreamState, TaskState};
use rustix::{
    buffer::spare_capacity,
    fs::{Mode, OFlags},
};
use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
    sync::Arc,
};

/// The maximum length of a chunk. Real chunks are far shorter; a larger value in a journal would exhaust the reader's
/// memory.
const MAX_CHUNK_BYTES: u64 = 16 * 1024 * 1024;

/// Opens a regular file for reading. Never waits for a pipe and never follows a link of that name.
pub fn open_regular(path: &Path) -> io::Result<File> {
    use rustix::io::Errno;
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::LOOP | Errno::NXIO) => return Err(other()),
        Err(e) => return Err(e.into()),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

/// Appends clean bytes to the file of one stream. The file is created with its first byte.
pub struct OutputAppender {
    file: Option<File>,
    offset: u64,
}

impl OutputAppender {
    #[must_use]
    pub fn new() -> Self {
        Self { file: None, offset: 0 }
    }

    /// Writes `bytes[*done..upto]` and advances `done`, so that after a full disk the caller can continue where it
    /// stopped.
    pub fn append<T: AsRef<[u8]>>(
        &mut self,
        dir: &Path,
        stream: StreamName,
        bytes: &Clean<T>,
        done: &mut usize,
        upto: usize,
    ) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let fd = rustix::fs::open(dir.join(stream.file()), flags, Mode::RUSR | Mode::WUSR)?;
                self.file.insert(File::from(fd))
            }
        };
        let bytes = &bytes.as_ref()[..upto];
        while *done < bytes.len() {
            match file.write(&bytes[*done..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => *done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// The offset of the next byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl Default for OutputAppender {
    fn default() -> Self {
        Self::new()
    }
}

/// The digest of one chunk.
#[must_use]
pub fn chunk_digest(bytes: &[u8]) -> Digest {
    Digest::from_bytes(*blake3::hash(bytes).as_bytes())
}

/// The first and last `each` bytes of a range of an output file, unchecked: to show what has just been written.
pub fn read_ends(dir: &Path, stream: StreamName, offset: u64, len: u64, each: usize) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let file = open_regular(&dir.join(stream.file()))?;
    let (mut head, mut tail) = (vec![0; each], vec![0; each]);
    file.read_exact_at(&mut head, offset)?;
    file.read_exact_at(&mut tail, offset.saturating_add(len).saturating_sub(each as u64))?;
    Ok((head, tail))
}

/// Reads one chunk and checks it against its frame. `dropped` is the number of bytes that the stream lacks before it.
pub fn read_verified_chunk(
    dir: &Path,
    stream: StreamName,
    offset: u64,
    len: u64,
    digest: Digest,
    dropped: u64,
) -> Result<Vec<u8>, ReadError> {
    let chunk = ChunkEntry { offset, at: offset.saturating_sub(dropped), len, digest };
    let file = open_regular(&dir.join(stream.file()))?;
    let mut bytes = Vec::new();
    append_chunks(&file, stream, &[chunk], &mut bytes)?;
    Ok(bytes)
}

/// Appends chunks that follow each other in the file to `bytes`, in as few reads as possible and without first filling
/// the room with zeros: for a long range both cost as much as half of the digests.
fn append_chunks(file: &File, stream: StreamName, chunks: &[ChunkEntry], bytes: &mut Vec<u8>) -> Result<(), ReadError> {
    let Some(first) = chunks.first() else { return Ok(()) };
    let size = file.metadata()?.len();
    chunks.iter().try_for_each(|chunk| chunk.check_lies_in(size, stream))?;
    let begin = bytes.len();
    let end = begin + chunks.iter().map(|chunk| chunk.len as usize).sum::<usize>();
    bytes.reserve_exact(end - begin);
    while bytes.len() < end {
        let at = first.at + (bytes.len() - begin) as u64;
        // Reads beyond the last chunk if there is room.
        match rustix::io::pread(file, spare_capacity(bytes), at) {
            Ok(0) => return Err(first.tampered(stream)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(ReadError::Io(e.into())),
        }
    }
    bytes.truncate(end);
    let mut rest = &bytes[begin..];
    for chunk in chunks {
        let (content, after) = rest.split_at(chunk.len as usize);
        chunk.check(content, stream)?;
        rest = after;
    }
    Ok(())
}

/// Where the chunks of a task's streams are, read from its journal while it grows.
pub struct OutputMap {
    journal: super::journal::JournalReader,
    layout: ChunkLayout,
}

/// Where the chunks are, according to the frames read so far.
#[derive(Default)]
pub(crate) struct ChunkLayout(HashMap<StreamName, StreamLayout>);

#[derive(Default)]
struct StreamLayout {
    chunks: Vec<ChunkEntry>,
    gap: Option<Gap>,
}

/// Bytes of a stream that were dropped. In the file, the bytes after the gap directly follow the bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    pub offset: u64,
    pub bytes: u64,
}

impl Gap {
    #[must_use]
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// The gaps that a reader has passed. A chunk after a gap is earlier in the file by the size of the gap.
#[derive(Debug, Default, Clone)]
pub struct StreamGaps(HashMap<StreamName, Gap>);

impl StreamGaps {
    /// The gaps in a task's state: for readers that start after them.
    #[must_use]
    pub fn from_state(state: &TaskState) -> Self {
        let gap = |(stream, s): (&StreamName, &StreamState)| {
            let offset = state.request.limits.output_bytes?;
            (s.dropped > 0).then_some((*stream, Gap { offset, bytes: s.dropped }))
        };
        Self(state.io.streams.iter().filter_map(gap).collect())
    }

    pub fn add_frame(&mut self, frame: &Frame) {
        if let Frame::Gap { stream, offset, bytes } = frame {
            self.0.insert(*stream, Gap { offset: *offset, bytes: *bytes });
        }
    }

    #[must_use]
    pub fn dropped_before(&self, stream: StreamName, offset: u64) -> u64 {
        self.0.get(&stream).filter(|gap| offset >= gap.end()).map_or(0, |gap| gap.bytes)
    }
}

/// One chunk: its offset in the stream, and how to read it.
#[derive(Clone, Copy)]
pub struct OutputChunk {
    stream: StreamName,
    chunk: ChunkEntry,
}

impl OutputChunk {
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.chunk.offset
    }

    #[must_use]
    pub fn end(&self) -> u64 {
        self.chunk.end()
    }

    /// Replaces `bytes` with the checked bytes. A buffer that is used again is not cleared first: only room that it
    /// never had is filled with zeros.
    pub fn read(&self, file: &File, bytes: &mut Vec<u8>) -> Result<(), ReadError> {
        let Self { stream, chunk } = self;
        chunk.check_lies_in(file.metadata()?.len(), *stream)?;
        bytes.resize(chunk.len as usize, 0);
        match file.read_exact_at(bytes, chunk.at) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(chunk.tampered(*stream)),
            done => done?,
        }
        chunk.check(bytes, *stream)
    }
}

#[derive(Clone, Copy)]
struct ChunkEntry {
    offset: u64,
    /// Its position in the file.
    at: u64,
    len: u64,
    digest: Digest,
}

impl ChunkEntry {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    fn end_in_file(&self) -> Option<u64> {
        self.at.checked_add(self.len)
    }

    fn tampered(&self, stream: StreamName) -> ReadError {
        ReadError::Tampered { stream, offset: self.offset, end: self.end() }
    }

    /// Checked before room is made for the chunk, because a damaged journal may state any length.
    fn check_lies_in(&self, file_bytes: u64, stream: StreamName) -> Result<(), ReadError> {
        let lies_in = self.len <= MAX_CHUNK_BYTES && self.end_in_file().is_some_and(|end| end <= file_bytes);
        if lies_in { Ok(()) } else { Err(self.tampered(stream)) }
    }

    fn check(&self, content: &[u8], stream: StreamName) -> Result<(), ReadError> {
        if chunk_digest(content) == self.digest { Ok(()) } else { Err(self.tampered(stream)) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read the output: {0}")]
    Io(#[from] io::Error),
    #[error("{stream} was changed after it was recorded: bytes {offset} to {end} do not match their digest")]
    Tampered { stream: StreamName, offset: u64, end: u64 },
    #[error("offset {offset} is beyond the end: the stream has {total} bytes")]
    BeyondEnd { offset: u64, total: u64 },
    #[error("the output limit dropped the bytes from {} to {}; offset {offset} is among them", gap.offset, gap.end())]
    InGap { offset: u64, gap: Gap },
}

impl ChunkLayout {
    /// Adds one line of a journal.
    pub(crate) fn add_line(&mut self, line: &str) {
        // Only these two kinds matter here, and most lines of a long journal are of the first kind.
        if !line.contains(r#""kind":"stream.output""#) && !line.contains(r#""kind":"stream.gap""#) {
            return;
        }
        match Record::parse(line).map(|r| r.what) {
            Ok(RecordContent::Frame(Frame::Output { stream, offset, len, digest })) => {
                let layout = self.0.entry(stream).or_default();
                let at = offset.saturating_sub(layout.gap.filter(|g| offset >= g.end()).map_or(0, |g| g.bytes));
                layout.chunks.push(ChunkEntry { offset, at, len, digest });
            }
            Ok(RecordContent::Frame(Frame::Gap { stream, offset, bytes })) => {
                self.0.entry(stream).or_default().gap = Some(Gap { offset, bytes });
            }
            _ => {}
        }
    }

    /// Every chunk of a stream, in journal order.
    pub(crate) fn chunks_of(&self, stream: StreamName) -> impl Iterator<Item = OutputChunk> {
        let chunks = self.0.get(&stream).map(|l| l.chunks.as_slice()).unwrap_or_default();
        chunks.iter().map(move |chunk| OutputChunk { stream, chunk: *chunk })
    }
}

impl OutputMap {
    pub fn open(dir: &Path, first_seq: u64) -> io::Result<Self> {
        Ok(Self { journal: super::journal::JournalReader::open(dir, first_seq)?, layout: ChunkLayout::default() })
    }

    /// Reads new lines of the journal.
    pub fn refresh(&mut self) -> io::Result<()> {
        loop {
            let lines = self.journal.lines(256 * 1024)?;
            if lines.is_empty() {
                return Ok(());
            }
            lines.iter().for_each(|(_, line)| self.layout.add_line(line));
        }
    }

    fn layout_of(&self, stream: StreamName) -> Option<&StreamLayout> {
        self.layout.0.get(&stream)
    }

    #[must_use]
    pub fn total(&self, stream: StreamName) -> u64 {
        self.layout_of(stream).and_then(|l| l.chunks.last()).map_or(0, ChunkEntry::end)
    }

    #[must_use]
    pub fn gap(&self, stream: StreamName) -> Option<Gap> {
        self.layout_of(stream)?.gap
    }

    /// The chunks with the bytes from `offset` on: at least `max` bytes if there are as many, and never across a gap.
    /// Their content is checked when it is read; they can be used without the map.
    #[must_use]
    pub fn chunks_from(&self, stream: StreamName, offset: u64, max: u64) -> Vec<OutputChunk> {
        let end = offset.saturating_add(max);
        let Some(layout) = self.layout_of(stream) else { return Vec::new() };
        let first = layout.chunks.partition_point(|c| c.end() <= offset);
        let until = layout.gap.filter(|gap| offset < gap.end()).map_or(u64::MAX, |gap| gap.offset);
        let wanted = layout.chunks[first..].iter().take_while(|c| c.offset < end && c.offset < until);
        wanted.map(|chunk| OutputChunk { stream, chunk: *chunk }).collect()
    }

    /// The verified bytes from `offset` on, at most `max`, and never across a gap.
    pub fn read(
        &self,
        cache: &mut ChunkCache,
        dir: &Path,
        stream: StreamName,
        offset: u64,
        max: u64,
    ) -> Result<Vec<u8>, ReadError> {
        let total = self.total(stream);
        if offset > total {
            return Err(ReadError::BeyondEnd { offset, total });
        }
        let mut end = offset.saturating_add(max).min(total);
        if let Some(gap) = self.gap(stream) {
            if (gap.offset..gap.end()).contains(&offset) && max > 0 {
                return Err(ReadError::InGap { offset, gap });
            }
            if offset < gap.offset {
                end = end.min(gap.offset);
            }
        }
        let mut out = Vec::with_capacity((end - offset).min(MAX_CHUNK_BYTES) as usize);
        if end == offset {
            return Ok(out);
        }
        let file = open_regular(&dir.join(stream.file()))?;
        let chunks = self.layout_of(stream).map(|l| l.chunks.as_slice()).unwrap_or_default();
        let chunks = &chunks[chunks.partition_point(|c| c.end() <= offset)..];
        let chunks = &chunks[..chunks.iter().take_while(|c| c.offset < end).count()];
        let is_whole = |c: &ChunkEntry| offset <= c.offset && c.end() <= end;
        // Whole chunks that follow each other in the file are read together, directly into the result.
        for run in chunks.chunk_by(|a, b| is_whole(a) && is_whole(b) && a.end_in_file() == Some(b.at)) {
            let chunk = &run[0];
            if is_whole(chunk) {
                append_chunks(&file, stream, run, &mut out)?;
                continue;
            }
            let bytes = cache.read_verified(&file, stream, chunk)?;
            let from = offset.saturating_sub(chunk.offset).min(chunk.len) as usize;
            let to = (end - chunk.offset).min(chunk.len) as usize;
            out.extend_from_slice(&bytes[from..to]);
        }
        // Without this, a journal that has no chunk between `offset` and its end would make readers ask forever.
        if out.is_empty() { Err(ReadError::Tampered { stream, offset, end }) } else { Ok(out) }
    }

    /// The byte range of the lines `line` to `line + lines` (from 1), as far as they exist.
    pub fn lines(
        &self,
        cache: &mut ChunkCache,
        dir: &Path,
        stream: StreamName,
        line: u64,
        lines: u64,
    ) -> Result<(u64, u64), ReadError> {
        let (mut number, mut start, mut offset) = (1, (line <= 1).then_some(0), 0);
        let last = line.max(1).saturating_add(lines);
        if lines == 0 {
            return Ok((0, 0));
        }
        // After a gap line numbers are unknown, so lines are counted only up to it.
        let total = self.gap(stream).map_or_else(|| self.total(stream), |gap| gap.offset);
        while offset < total {
            let bytes = self.read(cache, dir, stream, offset, READ_WINDOW_BYTES)?;
            for end in memchr::memchr_iter(b'\n', &bytes) {
                number += 1;
                let here = offset + end as u64 + 1;
                if number == line {
                    start = Some(here);
                }
                if number == last {
                    return Ok((start.unwrap_or(here), here));
                }
            }
            offset += bytes.len() as u64;
        }
        Ok((start.unwrap_or(total), total))
    }

    /// The offset at which the last `lines` lines begin.
    pub fn tail(&self, cache: &mut ChunkCache, dir: &Path, stream: StreamName, lines: u64) -> Result<u64, ReadError> {
        let total = self.total(stream);
        // Never across a gap: the tail is the part after it.
        let first = self.gap(stream).filter(|gap| gap.end() < total).map_or(0, Gap::end);
        let mut end = total;
        let mut left = lines;
        while end > first && left > 0 {
            let start = end.saturating_sub(READ_WINDOW_BYTES).max(first);
            let bytes = self.read(cache, dir, stream, start, end - start)?;
            for newline in memchr::memrchr_iter(b'\n', &bytes) {
                let after = start + newline as u64 + 1;
                if after == total {
                    continue;
                }
                left -= 1;
                if left == 0 {
                    return Ok(after);
                }
            }
            end = start;
        }
        Ok(if lines == 0 { total } else { first })
    }
}

const READ_WINDOW_BYTES: u64 = 256 * 1024;
const MAX_CACHED_CHUNKS: usize = 4;

/// A few chunks that have been read and checked. If the file has changed since, it is read and checked again.
#[derive(Default)]
pub struct ChunkCache {
    chunks: Vec<(ChunkKey, Arc<Vec<u8>>)>,
}

#[derive(PartialEq, Clone, Copy)]
struct ChunkKey {
    dev: u64,
    inode: u64,
    mtime: (i64, i64),
    size: u64,
    stream: StreamName,
    offset: u64,
}

impl ChunkCache {
    fn read_verified(
        &mut self,
        file: &File,
        stream: StreamName,
        chunk: &ChunkEntry,
    ) -> Result<Arc<Vec<u8>>, ReadError> {
        let meta = file.metadata()?;
        let key = ChunkKey {
            dev: meta.dev(),
            inode: meta.ino(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            size: meta.size(),
            stream,
            offset: chunk.offset,
        };
        if let Some((_, bytes)) = self.chunks.iter().find(|(k, _)| *k == key) {
            return Ok(Arc::clone(bytes));
        }
        let mut bytes = if self.chunks.len() < MAX_CACHED_CHUNKS {
            Vec::new()
        } else {
            // The oldest buffer is reused unless a reader still holds it.
            Arc::try_unwrap(self.chunks.remove(0).1).unwrap_or_default()
        };
        OutputChunk { stream, chunk: *chunk }.read(file, &mut bytes)?;
        let bytes = Arc::new(bytes);
        self.chunks.push((key, Arc::clone(&bytes)));
        Ok(bytes)
    }
}
