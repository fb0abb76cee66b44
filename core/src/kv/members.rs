//! The targets of providers that have a DNS name for them, as all VMs know them.
//!
//! The VM that leads hears them from the sidecar and writes them into the shared data, under a key of
//! their own, so that they outlive whatever else of the sidecar's words changes with a version.
//!
//! They are told as a text, a line for each provider: its name, what it has for an endpoint, and the
//! addresses, those that the name has lost a moment ago with a minus before them, or a question mark
//! where none is known yet. There are no spaces in names and endpoints. Lists of structures would read
//! as well, and take the filter ten times as much code.
//!
//! Invariant: what was known stays until something else is told of the same provider and endpoint.

use crate::shared::Host;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;
use std::fmt::{self, Write};
use std::net::SocketAddr;

const KEY: &str = "rolter/1/members";

/// Providers of which nothing is told any more, and of which what was known is kept all the same:
/// filter and sidecar hear of a new configuration at different times.
const MAX_UNTOLD: usize = 16;

/// The targets of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The provider's name.
    pub provider: String,
    /// Its endpoint, `name:port`: another one has others.
    pub endpoint: String,
    /// In the order in which they came. Nothing while it is not known whether there are any.
    pub members: Option<Vec<Member>>,
}

/// An address that a provider's name has, or had a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Of a target.
    pub address: SocketAddr,
    /// Whether the name has it. While not, it is to get no requests, but may be back.
    pub present: bool,
}

/// What one VM knows of the targets of all providers.
pub struct Roster<H: Host> {
    /// A number that grows when there is something else to read.
    version: H::Gauge,
    read: Option<u64>,
    all: Vec<Members>,
    turnovers: u64,
}

impl<H: Host> Roster<H> {
    /// Knows of none.
    pub fn new(host: &H) -> Self {
        Self {
            version: host.gauge("rolter_members_version", &[("vm", &host.vm())]),
            read: None,
            all: Vec::new(),
            turnovers: 0,
        }
    }

    /// Reads what is new.
    pub fn refresh(&mut self, host: &H) {
        let version = Some(host.read(self.version));
        if self.read == version {
            return;
        }
        self.read = version;
        let stored = host.get(KEY);
        let text = stored.as_ref().map(|stored| str::from_utf8(&stored.value));
        if let Some(all) = text.and_then(Result::ok).and_then(read) {
            self.know(all);
        }
    }

    /// Takes what the sidecar tells, as the VM that leads, and shows it to the others. The names of
    /// the targets that are to be forgotten.
    pub fn hear(&mut self, host: &H, told: &[Members]) -> Vec<String> {
        self.refresh(host);
        let before = |of: &Members| self.all.iter().find(|known| known.is_of(of));
        let mut departed = Vec::new();
        let mut all = Vec::new();
        for of in told {
            let known = before(of);
            all.push(match (&of.members, known) {
                (None, Some(known)) => known.clone(),
                _ => of.clone(),
            });
            if let (Some(now), Some(known)) = (&of.members, known) {
                let was = known.members.iter().flatten();
                let is_gone = |address| !now.iter().any(|member| member.address == address);
                let gone = was.filter(|member| is_gone(member.address));
                departed.extend(gone.map(|member| target_name(&of.provider, member.address)));
            }
        }
        let is_told = |known: &&Members| told.iter().any(|of| known.is_of(of));
        let untold = self.all.iter().filter(|known| !is_told(known));
        all.extend(untold.take(MAX_UNTOLD).cloned());
        if all != self.all {
            host.set(KEY, write(&all).as_bytes(), None);
            host.add(self.version, 1);
            self.know(all);
        }
        departed
    }

    /// A number that is another one whenever [`members`](Self::members) may be others.
    pub fn turnovers(&self) -> u64 {
        self.turnovers
    }

    /// The targets of a provider with this endpoint.
    pub fn members(&self, provider: &str, endpoint: &str) -> &[Member] {
        let mut all = self.all.iter();
        let found = all.find(|of| of.provider == provider && of.endpoint == endpoint);
        let members = found.and_then(|of| of.members.as_deref());
        members.unwrap_or_default()
    }

    fn know(&mut self, all: Vec<Members>) {
        if self.all != all {
            self.all = all;
            self.turnovers += 1;
        }
    }
}

/// What the target at an address of a provider's name is called.
pub fn target_name(provider: &str, address: SocketAddr) -> String {
    format!("{provider}/{address}")
}

impl Members {
    fn is_of(&self, other: &Self) -> bool {
        self.provider == other.provider && self.endpoint == other.endpoint
    }
}

pub(super) fn serialize<S: Serializer>(all: &[Members], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&write(all))
}

pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<Members>, D::Error> {
    read(&String::deserialize(from)?).ok_or_else(|| D::Error::custom("no members"))
}

fn write(all: &[Members]) -> String {
    let mut text = String::new();
    for members in all {
        // Memory takes all.
        let _ = write_line(members, &mut text);
    }
    text
}

fn write_line(of: &Members, to: &mut String) -> fmt::Result {
    write!(to, "{} {}", of.provider, of.endpoint)?;
    match &of.members {
        None => to.write_str(" ?")?,
        Some(members) => {
            for Member { address, present } in members {
                let sign = if *present { "" } else { "-" };
                write!(to, " {sign}{address}")?;
            }
        }
    }
    to.write_char('\n')
}

fn read(text: &str) -> Option<Vec<Members>> {
    text.lines().map(read_line).collect()
}

fn read_line(line: &str) -> Option<Members> {
    let mut words = line.split(' ');
    let (provider, endpoint) = (words.next()?, words.next()?);
    let mut words = words.peekable();
    let members = if words.peek() == Some(&"?") {
        None
    } else {
        Some(words.map(read_member).collect::<Option<_>>()?)
    };
    Some(Members {
        provider: provider.to_owned(),
        endpoint: endpoint.to_owned(),
        members,
    })
}

fn read_member(word: &str) -> Option<Member> {
    let address = word.strip_prefix('-');
    Some(Member {
        address: address.unwrap_or(word).parse().ok()?,
        present: address.is_none(),
    })
}
