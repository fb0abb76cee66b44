//! Reading an event stream.

/// An event: its type, where it names one, and its data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event<'a> {
    pub(super) kind: &'a str,
    pub(super) data: String,
}

/// The events of a stream in order. What no empty line ends is no event: it is cut.
pub(super) struct Events<'a> {
    rest: &'a str,
}

impl<'a> Events<'a> {
    pub(super) fn new(stream: &'a str) -> Self {
        Self { rest: stream }
    }

    /// What is left when there are no more events: nothing, unless the stream is cut.
    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        let mut event = Event {
            kind: "",
            data: String::new(),
        };
        let mut has_data = false;
        let mut lines = self.rest;
        loop {
            let (line, rest) = split_line(lines)?;
            lines = rest;
            if line.is_empty() {
                self.rest = rest;
                if has_data {
                    return Some(event);
                }
                // Comments, or nothing at all.
                event.kind = "";
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => event.kind = value,
                "data" => {
                    if has_data {
                        event.data.push('\n');
                    }
                    has_data = true;
                    event.data.push_str(value);
                }
                _ => {}
            }
        }
    }
}

/// A line, and what follows its end. Nothing where it has none.
fn split_line(text: &str) -> Option<(&str, &str)> {
    let end = text.find(['\r', '\n'])?;
    let (line, rest) = text.split_at_checked(end)?;
    let rest = rest.strip_prefix("\r\n").or(rest.get(1..))?;
    Some((line, rest))
}
