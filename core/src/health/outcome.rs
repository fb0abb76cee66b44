//! What a response, or the lack of one, says about the target that was to send it.
//!
//! Only what is the target's own doing counts. Clients leave, fall silent and send nonsense, and
//! filters of Envoy answer by themselves: if any of that counted, clients could have healthy targets
//! taken out of use.

/// What became of a request at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It answered, and not with a fault of its own.
    Answered,
    /// It asked for a pause of so many milliseconds, or of a length that it did not tell.
    Busy(Option<u64>),
    /// A retry went on to another target. Why is not known: Envoy shows the last attempt alone.
    PassedOver,
    /// It answered with a fault, broke off, or took too long.
    Failed,
    /// There was no connection to it.
    Unreachable,
}

/// The beginning of a response, as Envoy tells of it.
#[derive(Clone, Copy, Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// Whether the target itself sent it: not Envoy, nor a filter.
    pub is_targets_own: bool,
    /// Whether the request had come as a whole, so that it was the target's turn.
    pub is_request_complete: bool,
    /// Envoy's response flags. Zero will do where the target itself sent the response.
    pub flags: u64,
    /// The pause in milliseconds that it asks for.
    pub pause: Option<u64>,
}

/// Bits of Envoy's response flags, by their short names in access logs.
mod flags {
    /// UH: the cluster has no host that may be used.
    pub(super) const NO_HOST: u64 = 0x2;
    /// UT: the route's timeout.
    pub(super) const TIMEOUT: u64 = 0x4;
    /// UR: the upstream reset the stream.
    pub(super) const REMOTE_RESET: u64 = 0x10;
    /// UF: no connection.
    pub(super) const NO_CONNECTION: u64 = 0x20;
    /// UC: the connection ended.
    pub(super) const CONNECTION_ENDED: u64 = 0x40;
    /// SI: silence for longer than the idle timeout, the client's or the target's.
    pub(super) const SILENCE: u64 = 0x1_0000;
    /// UPE: the response broke the protocol, as one that ends too early does.
    pub(super) const PROTOCOL_ERROR: u64 = 0x80_0000;
    /// NC: there is no such cluster.
    pub(super) const NO_CLUSTER: u64 = 0x100_0000;
}

impl Outcome {
    /// What the beginning of a response says. Nothing where it is the doing of others.
    pub fn of_response(response: Response) -> Option<Self> {
        if response.is_targets_own {
            return Some(Self::of_status(response.status, response.pause));
        }
        // Between the end of the request and the beginning of the answer the silence is the
        // target's; at other times it may be a client's that neither sends nor reads.
        let silence = if response.is_request_complete {
            flags::TIMEOUT | flags::SILENCE
        } else {
            0
        };
        Self::of_flags(response.flags, silence)
    }

    /// What Envoy's response flags say at the end of a request whose response was not complete, or
    /// had not begun.
    pub fn of_broken_off(flags: u64) -> Option<Self> {
        Self::of_flags(flags, 0)
    }

    /// Whether it tells against the target.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::PassedOver | Self::Failed | Self::Unreachable)
    }

    /// The name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Busy(_) => "busy",
            Self::PassedOver => "passed_over",
            Self::Failed => "failed",
            Self::Unreachable => "unreachable",
        }
    }

    fn of_status(status: u16, pause: Option<u64>) -> Self {
        match (status, pause) {
            (429, _) | (503, Some(_)) => Self::Busy(pause),
            // 501 and 505 are about the request.
            (500 | 502..=504 | 506.., _) => Self::Failed,
            _ => Self::Answered,
        }
    }

    /// `more` are flags that stand for a failure here beside the usual ones.
    fn of_flags(flags: u64, more: u64) -> Option<Self> {
        const UNREACHABLE: u64 = flags::NO_CONNECTION | flags::NO_HOST | flags::NO_CLUSTER;
        const FAILED: u64 = flags::REMOTE_RESET | flags::CONNECTION_ENDED | flags::PROTOCOL_ERROR;
        if flags & UNREACHABLE != 0 {
            Some(Self::Unreachable)
        } else if flags & (FAILED | more) != 0 {
            Some(Self::Failed)
        } else {
            None
        }
    }
}
