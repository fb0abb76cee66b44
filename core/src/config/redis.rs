//! Where Redis is.

use super::fields::Fields;

/// Where Redis is, and who asks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redis {
    /// How its servers work together.
    pub kind: RedisKind,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// The server, or some of several; at least one.
    pub nodes: Vec<RedisNode>,
    /// The number of the database; 0 for a cluster, which has no others.
    pub database: u32,
    /// Whose password it is; nothing: the default user's.
    pub user: Option<String>,
    /// The variable of the sidecar's environment that has the password, if there is one.
    pub password_env: Option<String>,
}

/// How the servers work together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisKind {
    /// There is one.
    Single,
    /// Each has a part of the keys.
    Cluster,
    /// The nodes are sentinels, who know the server.
    Sentinel {
        /// The name under which they know it.
        service: String,
    },
}

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisNode {
    /// A name or an address; an IPv6 address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

const WANTED: &str = "write redis://host:6379, redis-cluster://host:6379,host:6379 or \
                      redis-sentinel://host:26379,host:26379#service; rediss for TLS";

impl Redis {
    pub(super) fn read(cache: &Fields<'_>) -> Option<Self> {
        let password_env = read_variable(cache, "redis_password_env", "REDIS_PASSWORD");
        let Some(url) = cache.unseen("redis") else {
            if password_env.is_some() {
                cache.add("redis_password_env", "has no effect without redis");
            }
            return None;
        };
        // No message shows it: it may have a password in it, by mistake.
        if user_of(url).is_some_and(|user| user.contains(':')) {
            let what = "no place for a password; write redis_password_env: NAME_OF_A_VARIABLE";
            cache.add("redis", what);
            return None;
        }
        let redis = Self::parse(url, password_env);
        if redis.is_none() {
            cache.add("redis", format!("no URL of a Redis; {WANTED}"));
        }
        redis
    }

    fn parse(url: &str, password_env: Option<String>) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (tls, kind) = match scheme.strip_prefix("rediss") {
            Some(kind) => (true, kind),
            None => (false, scheme.strip_prefix("redis")?),
        };
        let (rest, service) = match rest.split_once('#') {
            Some((rest, service)) => (rest, Some(service)),
            None => (rest, None),
        };
        let (servers, database) = match rest.split_once('/') {
            Some((servers, database)) => (servers, database),
            None => (rest, ""),
        };
        let database = match database {
            "" => 0,
            digits => digits.parse().ok()?,
        };
        let (user, hosts) = match servers.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, servers),
        };
        let (kind, port) = match (kind, service) {
            ("", None) if !hosts.contains(',') => (RedisKind::Single, 6379),
            ("-cluster", None) if database == 0 => (RedisKind::Cluster, 6379),
            ("-sentinel", Some(service)) if !service.is_empty() => {
                let service = service.to_owned();
                (RedisKind::Sentinel { service }, 26379)
            }
            _ => return None,
        };
        let nodes: Option<Vec<RedisNode>> = hosts
            .split(',')
            .map(|host| RedisNode::parse(host, port))
            .collect();
        Some(Self {
            kind,
            tls,
            nodes: nodes?,
            database,
            user: user.filter(|user| !user.is_empty()).map(str::to_owned),
            password_env,
        })
    }
}

impl RedisNode {
    fn parse(text: &str, default: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(v6) => {
                let (host, port) = v6.split_once(']')?;
                let is_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
                (is_v6.then_some(host)?, port)
            }
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|&port| port != 0)?,
            None => port.is_empty().then_some(default)?,
        };
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
        (!host.is_empty() && host.bytes().all(allowed)).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }
}

fn user_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '#', '?']).next()?;
    Some(authority.rsplit_once('@')?.0)
}

/// The name of a variable of the sidecar's environment. No message shows it: it may be the secret
/// itself, by mistake.
pub(super) fn read_variable(
    fields: &Fields<'_>,
    key: &'static str,
    example: &str,
) -> Option<String> {
    let name = fields.unseen(key)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_name = name.bytes().all(allowed) && !name.starts_with(|c: char| c.is_ascii_digit());
    if name.is_empty() || !is_name {
        let what = format!("no name of a variable; write one, as in {example}");
        fields.add(key, what);
    }
    Some(name.to_owned())
}
