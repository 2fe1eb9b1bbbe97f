//! The floor: the least that a task server can do with the same client, shell and disk. It has no gate, no redaction,
//! no shim and no recovery. The daemon is measured against it.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{
        fs::FileExt as _,
        net::{UnixListener, UnixStream},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Condvar, Mutex},
    thread,
};

#[derive(Default)]
struct FloorTask {
    frames: Vec<String>,
    exited: bool,
    bytes: u64,
}

struct Floor {
    tasks: Mutex<HashMap<u64, FloorTask>>,
    changed: Condvar,
    log: Mutex<File>,
    dir: PathBuf,
    /// Syncs to disk at the start and at the end of a task.
    durable: bool,
}

/// Serves until the process ends.
pub(crate) fn serve(socket: &Path, dir: &Path, durable: bool) -> crate::Result<()> {
    let open = || -> io::Result<(File, UnixListener)> {
        std::fs::create_dir_all(dir)?;
        Ok((OpenOptions::new().create(true).append(true).open(dir.join("log"))?, UnixListener::bind(socket)?))
    };
    let (log, listener) = open().map_err(|e| e.to_string())?;
    let floor = Arc::new(Floor {
        tasks: Mutex::default(),
        changed: Condvar::new(),
        log: Mutex::new(log),
        dir: dir.to_owned(),
        durable,
    });
    for stream in listener.incoming().flatten() {
        let floor = Arc::clone(&floor);
        thread::spawn(move || {
            let _ = floor.serve_connection(stream);
        });
    }
    Ok(())
}

impl Floor {
    fn frame(&self, id: u64, line: String, sync: bool, change: impl FnOnce(&mut FloorTask)) -> io::Result<()> {
        {
            let mut log = self.log.lock().expect("unpoisoned");
            log.write_all(format!("{line}\n").as_bytes())?;
            if sync && self.durable {
                log.sync_data()?;
            }
        }
        let mut tasks = self.tasks.lock().expect("unpoisoned");
        let task = tasks.entry(id).or_default();
        task.frames.push(line);
        change(task);
        self.changed.notify_all();
        Ok(())
    }

    fn run(&self, id: u64, command: &str) -> io::Result<()> {
        let mut file = File::create(self.dir.join(format!("{id}.out")))?;
        self.frame(id, format!(r#"{{"seq":0,"task_id":"{id}","type":"spawned"}}"#), true, |_| {})?;
        let mut bash = crate::command("bash");
        bash.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = bash.spawn()?;
        let mut pipe = child.stdout.take().expect("piped");
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, 1 << 20);
        let (mut buf, mut offset, mut seq) = (vec![0; 256 * 1024], 0, 1);
        loop {
            let n = pipe.read(&mut buf)?;
            if n == 0 {
                break;
            }
            file.write_all(&buf[..n])?;
            let line = format!(r#"{{"seq":{seq},"task_id":"{id}","type":"output","offset":{offset},"bytes":{n}}}"#);
            self.frame(id, line, false, |_| {})?;
            offset += n as u64;
            seq += 1;
        }
        let code = child.wait()?.code().unwrap_or(-1);
        if self.durable && offset > 0 {
            file.sync_data()?;
        }
        let line = format!(r#"{{"seq":{seq},"task_id":"{id}","kind":"task.settled","exit_code":{code}}}"#);
        self.frame(id, line, true, |task| (task.exited, task.bytes) = (true, offset))
    }

    fn serve_connection(self: Arc<Self>, stream: UnixStream) -> io::Result<()> {
        let mut to = stream.try_clone()?;
        let mut from = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if from.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let mut words = line.split(' ');
            let (method, path) = (words.next().unwrap_or("").to_owned(), words.next().unwrap_or("/").to_owned());
            let mut length = 0;
            loop {
                line.clear();
                from.read_line(&mut line)?;
                match line.trim_end().split_once(':') {
                    None => break,
                    Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                        length = value.trim().parse().unwrap_or(0);
                    }
                    Some(_) => {}
                }
            }
            let mut body = vec![0; length];
            from.read_exact(&mut body)?;
            if !self.answer(&mut to, &method, &path, &body)? {
                return Ok(());
            }
        }
    }

    /// Returns whether the connection stays open.
    fn answer(self: &Arc<Self>, to: &mut UnixStream, method: &str, path: &str, body: &[u8]) -> io::Result<bool> {
        let (route, query) = path.split_once('?').unwrap_or((path, ""));
        let parts: Vec<&str> = route.trim_matches('/').split('/').collect();
        let id = parts.get(1).and_then(|id| id.parse().ok()).unwrap_or(0);
        let json = |to: &mut UnixStream, body: &str| {
            to.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes())
        };
        match (method, parts.get(2).copied()) {
            ("POST", _) => {
                let text = String::from_utf8_lossy(body);
                let command = text.split(r#""command":""#).nth(1).unwrap_or("");
                let command = command.split('"').next().unwrap_or("").to_owned();
                let id = {
                    let mut tasks = self.tasks.lock().expect("unpoisoned");
                    let id = tasks.len() as u64 + 1;
                    tasks.insert(id, FloorTask::default());
                    id
                };
                let floor = Arc::clone(self);
                thread::spawn(move || floor.run(id, &command));
                json(to, &format!(r#"{{"task_id":"{id}"}}"#))?;
            }
            (_, None) => {
                let tasks = self.tasks.lock().expect("unpoisoned");
                let status = |id: &u64, t: &FloorTask| {
                    let status = if t.exited { "exited" } else { "running" };
                    format!(r#"{{"task_id":"{id}","status":"{status}","bytes":{}}}"#, t.bytes)
                };
                let body = match tasks.get(&id) {
                    Some(task) => status(&id, task),
                    None => {
                        format!("[{}]", tasks.iter().take(50).map(|(i, t)| status(i, t)).collect::<Vec<_>>().join(","))
                    }
                };
                drop(tasks);
                json(to, &body)?;
            }
            (_, Some("events")) => {
                to.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")?;
                self.events(to, id)?;
                return Ok(false);
            }
            (_, Some(_)) => self.output(to, id, query)?,
        }
        Ok(true)
    }

    fn events(&self, to: &mut UnixStream, id: u64) -> io::Result<()> {
        let mut sent = 0;
        loop {
            let mut tasks = self.tasks.lock().expect("unpoisoned");
            while tasks.get(&id).is_some_and(|t| t.frames.len() == sent && !t.exited) {
                tasks = self.changed.wait(tasks).expect("unpoisoned");
            }
            let Some(task) = tasks.get(&id) else { return Ok(()) };
            let text: String = task.frames[sent..].iter().map(|f| format!("data: {f}\n\n")).collect();
            sent = task.frames.len();
            let exited = task.exited;
            drop(tasks);
            to.write_all(text.as_bytes())?;
            if exited {
                return Ok(());
            }
        }
    }

    fn output(&self, to: &mut UnixStream, id: u64, query: &str) -> io::Result<()> {
        let number = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok())
        };
        let file = File::open(self.dir.join(format!("{id}.out")))?;
        let offset = number("offset_bytes").unwrap_or(0);
        let n = number("max_bytes").unwrap_or(u64::MAX).min(file.metadata()?.len().saturating_sub(offset));
        to.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {n}\r\n\r\n").as_bytes())?;
        let mut buf = vec![0; n as usize];
        file.read_exact_at(&mut buf, offset)?;
        to.write_all(&buf)
    }
}
