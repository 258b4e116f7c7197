//! A watch on its way to the client, event by event: held back, swallowed or ended as the faults say. Must not
//! change an event or the order of events.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use futures::stream::poll_fn;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::admitted::OpenWatch;
use super::answer::{Body, Error};

/// An event is one object, and the server's limit for an object is far below this.
const LONGEST_EVENT: usize = 32 << 20;

/// The body that the client reads, and the pump that fills it.
pub(super) fn watch_body(watch: OpenWatch, upstream: Incoming) -> (Body, impl Future<Output = ()>) {
    let (sender, mut receiver) = mpsc::channel::<Result<Bytes, Error>>(16);
    let frames = poll_fn(move |context| receiver.poll_recv(context)).map_ok(Frame::data);
    (StreamBody::new(frames).boxed_unsync(), pump(watch, Lines::new(upstream), sender))
}

async fn pump(watch: OpenWatch, mut lines: Lines, sender: mpsc::Sender<Result<Bytes, Error>>) {
    let mut holds = watch.holds();
    let mut waiting: VecDeque<Bytes> = VecDeque::new();
    let mut ended: Option<Result<(), Error>> = None;
    loop {
        while !waiting.is_empty() && !watch.held() {
            let Some(line) = waiting.pop_front() else {
                break;
            };
            tokio::select! {
                biased;
                () = watch.token.cancelled() => return,
                sent = sender.send(Ok(line)) => if sent.is_err() { return },
            }
        }
        // The end of a held watch is held too: it comes after its events.
        if waiting.is_empty()
            && let Some(end) = ended.take()
        {
            if let Err(error) = end {
                let _ = sender.send(Err(error)).await;
            }
            return;
        }
        tokio::select! {
            biased;
            () = watch.token.cancelled() => return,
            () = sender.closed() => return,
            changed = holds.changed() => if changed.is_err() { return },
            line = lines.next(), if ended.is_none() => match line {
                Ok(Some(line)) => if !(is_change(&line) && watch.swallows()) {
                    waiting.push_back(line);
                },
                Ok(None) => ended = Some(Ok(())),
                Err(error) => ended = Some(Err(error)),
            },
        }
    }
}

/// Whether a line is about an object, and not only of progress or an error.
fn is_change(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
    }
    serde_json::from_slice::<Event<'_>>(line)
        .is_ok_and(|event| matches!(event.kind, "ADDED" | "MODIFIED" | "DELETED"))
}

/// Cuts a body into lines, each with its end.
struct Lines {
    body: Incoming,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
}

impl Lines {
    fn new(body: Incoming) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next line; the rest without a line end comes last. Loses nothing when cancelled.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(at) = found {
                let line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                return Ok(Some(line.freeze()));
            }
            self.searched = self.buffer.len();
            if self.searched > LONGEST_EVENT {
                return Err(format!("a watch event is longer than {LONGEST_EVENT} bytes").into());
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(error.into()),
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    self.searched = 0;
                    return Ok(Some(self.buffer.split().freeze()));
                }
            }
        }
    }
}
