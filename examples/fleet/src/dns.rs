//! A DNS server whose answers can be changed at any time, for names whose addresses come and go.
//!
//! It knows A and AAAA, over UDP and TCP. What is over 512 bytes is cut off over UDP, as by any server
//! of old, so whoever wants it has to come over TCP.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often a port is looked for that is free for both protocols.
const TRIES: usize = 64;
/// How long a thread may not notice that it is to end.
const PAUSE: Duration = Duration::from_millis(20);
/// Long enough that whoever keeps answers is found out.
const TTL_SECS: u32 = 3600;
const MAX_UDP_BYTES: usize = 512;
const HEADER_BYTES: usize = 12;
const A: u16 = 1;
const AAAA: u16 = 28;

/// What is answered to questions for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    /// It has these addresses; which may be none.
    Addresses(Vec<IpAddr>),
    /// There is no such name. So it is with all that were not set.
    NoSuchName,
    /// The server has failed.
    Failure,
    /// Nothing.
    Silence,
}

/// A DNS server on loopback, until it is dropped.
pub struct Dns {
    address: SocketAddr,
    zone: Arc<Zone>,
}

#[derive(Default)]
struct Zone {
    /// By name in lower case, without a dot at its end.
    answers: Mutex<HashMap<String, DnsAnswer>>,
    /// Questions that came, and those of them that came over TCP.
    asked: AtomicU64,
    asked_over_tcp: AtomicU64,
    is_over: AtomicBool,
}

impl Dns {
    /// On a free port.
    ///
    /// # Errors
    /// Where there is none.
    pub fn start() -> io::Result<Self> {
        let take = || {
            let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            let tcp = TcpListener::bind(udp.local_addr()?)?;
            Ok((udp, tcp))
        };
        let mut last = take();
        for _ in 1..TRIES {
            if last.is_ok() {
                break;
            }
            last = take();
        }
        let (udp, tcp): (UdpSocket, TcpListener) = last.map_err(|error: io::Error| error)?;
        let (address, zone) = (udp.local_addr()?, Arc::new(Zone::default()));
        udp.set_read_timeout(Some(PAUSE))?;
        tcp.set_nonblocking(true)?;
        let of_udp = Arc::clone(&zone);
        thread::spawn(move || of_udp.serve_udp(&udp));
        let of_tcp = Arc::clone(&zone);
        thread::spawn(move || of_tcp.serve_tcp(&tcp));
        Ok(Self { address, zone })
    }

    /// Where it is, over UDP as over TCP.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers so from now on.
    pub fn set(&self, name: &str, answer: DnsAnswer) {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let answers = &self.zone.answers;
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.insert(name, answer);
    }

    /// Gives a name these addresses.
    pub fn set_addresses(&self, name: &str, addresses: impl IntoIterator<Item = IpAddr>) {
        let addresses = addresses.into_iter().collect();
        self.set(name, DnsAnswer::Addresses(addresses));
    }

    /// How many questions have come.
    pub fn asked(&self) -> u64 {
        self.zone.asked.load(Ordering::SeqCst)
    }

    /// How many of them came over TCP.
    pub fn asked_over_tcp(&self) -> u64 {
        self.zone.asked_over_tcp.load(Ordering::SeqCst)
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.zone.is_over.store(true, Ordering::SeqCst);
    }
}

impl Zone {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; 4096];
        while !self.is_over() {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                continue;
            };
            let answer = buffer.get(..length).and_then(|asked| self.answer(asked));
            if let Some(mut answer) = answer {
                if answer.len() > MAX_UDP_BYTES {
                    answer = cut_off(answer);
                }
                // Whoever does not wait for it any more is past help.
                drop(socket.send_to(&answer, from));
            }
        }
    }

    fn serve_tcp(self: &Arc<Self>, listener: &TcpListener) {
        while !self.is_over() {
            match listener.accept() {
                Ok((stream, _)) => {
                    let zone = Arc::clone(self);
                    // How it ends is the client's affair.
                    thread::spawn(move || drop(zone.serve_stream(stream)));
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    fn serve_stream(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        while !self.is_over() {
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            let mut asked = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut asked)?;
            self.asked_over_tcp.fetch_add(1, Ordering::SeqCst);
            if let Some(answer) = self.answer(&asked) {
                let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
                stream.write_all(&[&length.to_be_bytes()[..], &answer].concat())?;
            }
        }
        Ok(())
    }

    /// The answer to a message, if it gets one.
    fn answer(&self, asked: &[u8]) -> Option<Vec<u8>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let question = Question::read(asked)?;
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (code, addresses) = match answers.get(&question.name) {
            None | Some(DnsAnswer::NoSuchName) => (3, &[][..]),
            Some(DnsAnswer::Failure) => (2, &[][..]),
            Some(DnsAnswer::Silence) => return None,
            Some(DnsAnswer::Addresses(addresses)) => (0, &addresses[..]),
        };
        let records: Vec<Vec<u8>> = addresses
            .iter()
            .filter_map(|address| record(*address, question.kind))
            .collect();
        let count = u16::try_from(records.len()).ok()?;
        let mut answer = asked.get(..2)?.to_vec();
        // It is an answer, and recursion is to be had.
        answer.extend([0x81, 0x80 | code, 0, 1]);
        answer.extend(count.to_be_bytes());
        answer.extend([0; 4]);
        answer.extend(question.bytes);
        answer.extend(records.concat());
        Some(answer)
    }
}

struct Question<'a> {
    name: String,
    kind: u16,
    bytes: &'a [u8],
}

impl<'a> Question<'a> {
    fn read(message: &'a [u8]) -> Option<Self> {
        let (mut at, mut labels) = (HEADER_BYTES, Vec::new());
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            let label = std::str::from_utf8(message.get(at..at + length)?).ok()?;
            labels.push(label.to_ascii_lowercase());
            at += length;
        }
        let kind = message.get(at..at + 2)?;
        Some(Self {
            name: labels.join("."),
            kind: u16::from_be_bytes(kind.try_into().ok()?),
            bytes: message.get(HEADER_BYTES..at + 4)?,
        })
    }
}

/// An address as what was asked for, if it is.
fn record(address: IpAddr, kind: u16) -> Option<Vec<u8>> {
    let octets = match (address, kind) {
        (IpAddr::V4(address), A) => address.octets().to_vec(),
        (IpAddr::V6(address), AAAA) => address.octets().to_vec(),
        _ => return None,
    };
    // The name is where the question has it.
    let mut record = vec![0xc0, 0x0c];
    record.extend(kind.to_be_bytes());
    record.extend([0, 1]);
    record.extend(TTL_SECS.to_be_bytes());
    record.extend(u16::try_from(octets.len()).ok()?.to_be_bytes());
    record.extend(octets);
    Some(record)
}

/// An answer without its records, which says that there are some.
fn cut_off(mut answer: Vec<u8>) -> Vec<u8> {
    if let Some(header) = answer.get_mut(..HEADER_BYTES) {
        header[2] |= 2;
        header[6..8].fill(0);
    }
    let end = Question::read(&answer)
        .map_or(HEADER_BYTES, |question| HEADER_BYTES + question.bytes.len());
    answer.truncate(end);
    answer
}
