//! How to get to Redis: one server, a cluster, or whom sentinels say.
//!
//! Every connection starts from the configuration: where sentinels name another server than before,
//! or a cluster has moved, the next connection leads there.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, RedisResult, TlsMode, Value,
};
use rolter_core::config::{self, RedisKind};
use std::time::Duration;

/// Commands that wait to be sent. More wait outside, where their callers' time ends it.
const WAITING_COMMANDS: usize = 1024;
/// What one server of a cluster may take. Each caller has a limit of its own.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(2);

/// The servers of a configuration.
pub(super) struct Servers {
    settings: config::Redis,
    password: Option<String>,
}

/// A connection, to be cloned at will.
#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Servers {
    pub(super) fn new(settings: config::Redis, password: Option<String>) -> Self {
        Self { settings, password }
    }

    /// Connects, which takes as long as it takes.
    pub(super) async fn connect(&self) -> RedisResult<Connection> {
        match &self.settings.kind {
            RedisKind::Single => {
                let node = self.nodes().next().unwrap_or(NOWHERE);
                let info = node.into_connection_info()?;
                let info = info.set_redis_settings(self.user());
                one(&Client::open(info)?).await
            }
            RedisKind::Sentinel { service } => {
                let client = self.sentinels(service)?.async_get_client().await?;
                one(&client).await
            }
            RedisKind::Cluster => {
                let connection = self.cluster()?.get_async_connection().await?;
                Ok(Connection::Cluster(connection))
            }
        }
    }

    fn nodes(&self) -> impl Iterator<Item = ConnectionAddr> {
        self.settings.nodes.iter().map(|node| {
            let (host, port) = (node.host.clone(), node.port);
            if self.settings.tls {
                ConnectionAddr::TcpTls {
                    host,
                    port,
                    insecure: false,
                    tls_params: None,
                }
            } else {
                ConnectionAddr::Tcp(host, port)
            }
        })
    }

    fn user(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default().set_db(self.settings.database.into());
        if let Some(user) = &self.settings.user {
            info = info.set_username(user);
        }
        if let Some(password) = &self.password {
            info = info.set_password(password);
        }
        info
    }

    fn sentinels(&self, service: &str) -> RedisResult<SentinelClient> {
        let kind = SentinelServerType::Master;
        let mut builder = SentinelClientBuilder::new(self.nodes(), service, kind)?
            .set_client_to_redis_db(self.settings.database.into());
        if let Some(user) = &self.settings.user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_redis_password(password);
        }
        if self.settings.tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        builder.build()
    }

    fn cluster(&self) -> RedisResult<ClusterClient> {
        let mut builder = ClusterClientBuilder::new(self.nodes())
            .connection_timeout(CLUSTER_TIMEOUT)
            .response_timeout(CLUSTER_TIMEOUT)
            // Who asked has no time for more.
            .retries(1);
        if let Some(user) = &self.settings.user {
            builder = builder.username(user);
        }
        if let Some(password) = &self.password {
            builder = builder.password(password);
        }
        if self.settings.tls {
            builder = builder.tls(TlsMode::Secure);
        }
        builder.build()
    }
}

/// The configuration has at least one node; where it had none, nothing answers.
const NOWHERE: ConnectionAddr = ConnectionAddr::Tcp(String::new(), 0);

async fn one(client: &Client) -> RedisResult<Connection> {
    let config = AsyncConnectionConfig::new()
        .set_pipeline_buffer_size(WAITING_COMMANDS)
        // Callers have limits of their own.
        .set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    Ok(Connection::One(connection.await?))
}

impl Connection {
    /// Whether what fails on it may concern some of the keys alone, those of one of its servers.
    pub(super) fn is_of_several(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Whether it leads to a server that answers; in a cluster, to any.
    pub(super) async fn ping(&mut self) -> RedisResult<()> {
        let ping = redis::cmd("PING");
        let answer = match self {
            Self::One(connection) => connection.req_packed_command(&ping).await,
            Self::Cluster(connection) => {
                let any = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                connection.route_command(ping, any).await
            }
        };
        match answer? {
            Value::ServerError(error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// What a server answers to one command, an error of its own included.
    pub(super) async fn ask(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(command).await,
            Self::Cluster(connection) => connection.req_packed_command(command).await,
        }
    }

    /// What it answers to several, each an answer or an error of its own. In a cluster their keys
    /// belong together.
    pub(super) async fn ask_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let count = commands.len();
        match self {
            Self::One(connection) => connection.req_packed_commands(commands, 0, count).await,
            Self::Cluster(connection) => connection.req_packed_commands(commands, 0, count).await,
        }
    }
}
