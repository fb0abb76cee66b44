//! `GET /v1/occupancy`: how full the KV cache is, as `LMCache`'s controller tells it.

use std::str::FromStr;

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::reply::{self, ApiError, Reply};
use crate::state::Stats;

/// What `GET /v1/occupancy` answers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Occupancy {
    /// `cache`: the share of blocks that hold something which a request can find.
    #[default]
    Cache,
    /// A number, sensible or not.
    Fixed(f64),
    /// `unavailable`: the cache's own share, and that there is no cache.
    Unavailable,
    /// `malformed`: something that is no JSON.
    Malformed,
    /// `500`: an internal error.
    InternalError,
}

impl FromStr for Occupancy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Ok(match text {
            "cache" => Self::Cache,
            "unavailable" => Self::Unavailable,
            "malformed" => Self::Malformed,
            "500" => Self::InternalError,
            _ => return Err(()),
        })
    }
}

impl Occupancy {
    /// Reads what `POST /sim/occupancy` asks for.
    pub(crate) fn asked(body: &Value) -> Result<Self, ApiError> {
        let asked = body.get("occupancy");
        let fixed = asked.and_then(Value::as_f64).map(Self::Fixed);
        let named = || asked.and_then(Value::as_str)?.parse().ok();
        fixed.or_else(named).ok_or_else(|| {
            let message =
                "occupancy must be a number, \"cache\", \"unavailable\", \"malformed\" or \"500\"";
            ApiError::bad_request(message)
        })
    }

    /// The answer, for an engine in this state.
    pub(crate) fn reply(self, stats: &Stats) -> Result<Reply, ApiError> {
        let (occupancy, available) = match self {
            Self::Cache => (of(stats), true),
            Self::Fixed(share) => (share, true),
            Self::Unavailable => (of(stats), false),
            Self::Malformed => {
                return Ok(reply::whole(
                    StatusCode::OK,
                    reply::JSON,
                    "{\"occupancy\": 0.4",
                ));
            }
            Self::InternalError => {
                return Err(ApiError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "Internal server error",
                ));
            }
        };
        let body = json!({"occupancy": occupancy, "cache_available": available});
        Ok(reply::json(StatusCode::OK, &body))
    }
}

fn of(stats: &Stats) -> f64 {
    let count = |blocks: usize| f64::from(u32::try_from(blocks).unwrap_or(u32::MAX));
    count(stats.blocks_cached) / count(stats.blocks_total)
}
