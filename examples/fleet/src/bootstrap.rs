//! Envoy's configuration: a documented one, with the engines and ports of this machine, and each
//! filter in a file of its own.

use crate::Reach;
use crate::envoy::Version;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

const BY_CLUSTER: &str = include_str!("../../../envoy/envoy.yaml");
const IN_POOL: &str = include_str!("../../../envoy/pool.yaml");
const WITH_POLICY: &str = include_str!("../../../envoy/policy.yaml");
const LISTENER: &str = "/static_resources/listeners/0";
const FILTERS: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config\
                       /http_filters";
/// The filter that routes, after that of the policy, where there is one.
const ROUTING: &str = "rolter";
const POLICY: &str = "rolter_policy";

/// What Envoy is told.
pub(crate) struct Bootstrap {
    /// The whole document.
    pub(crate) document: Value,
    /// Its filters of the module, in their order. Envoy takes each from a file of its own, so that
    /// it can change.
    pub(crate) filters: Vec<Filter>,
    /// The configuration that they share.
    pub(crate) configuration: Value,
}

/// A filter's part of the document.
pub(crate) struct Filter {
    pub(crate) name: &'static str,
    typed: Value,
    /// How often it has changed.
    version: usize,
}

/// Below this, Envoy holds a body within the listener's limit, whatever the route says. Then the
/// limit has to be as long as the longest body in chunks, as `envoy/envoy.yaml` says; this is what
/// the tests send.
const ROUTE_LIMITS_BODIES: Version = Version(1, 37);
const LONGEST_BODY: usize = 5 << 20;

/// What there is to be configured.
pub(crate) struct Parts<'a> {
    /// The names and addresses of the engines.
    pub(crate) engines: &'a [(&'a str, SocketAddr)],
    pub(crate) reach: Reach,
    /// The policy of all routes, if there is one.
    pub(crate) policy: Option<&'a Value>,
    /// The names and addresses of what else there is to be reached.
    pub(crate) clusters: &'a [(String, SocketAddr)],
    /// The socket of the sidecar, where there is one.
    pub(crate) sidecar: Option<&'a Path>,
    pub(crate) listen: SocketAddr,
    pub(crate) envoy: Version,
    pub(crate) module: &'a Path,
}

/// The bootstrap for these, in a folder.
pub(crate) fn bootstrap(
    folder: &Path,
    parts: &Parts<'_>,
    configure: impl FnOnce(&mut Value),
    finish: impl FnOnce(&mut Value),
) -> io::Result<Bootstrap> {
    let &Parts {
        engines,
        reach,
        policy,
        clusters: others,
        sidecar,
        listen,
        envoy,
        module,
    } = parts;
    let documented = match reach {
        Reach::Cluster if policy.is_some() => WITH_POLICY,
        Reach::Cluster => BY_CLUSTER,
        Reach::Pool => IN_POOL,
    };
    let mut document: Value = serde_saphyr::from_str(documented).map_err(io::Error::other)?;
    let names: Vec<&str> = engines.iter().map(|(name, _)| *name).collect();

    *at(&mut document, "/admin/address/socket_address")? = address(([127, 0, 0, 1], 0).into());
    let listener = at(&mut document, LISTENER)?;
    *at(listener, "/address/socket_address")? = address(listen);
    if envoy < ROUTE_LIMITS_BODIES {
        *at(listener, "/per_connection_buffer_limit_bytes")? = json!(LONGEST_BODY);
    }
    let slots = at(&mut document, FILTERS)?;
    let names_of_filters: &[_] = if policy.is_some() {
        &[POLICY, ROUTING]
    } else {
        &[ROUTING]
    };
    let filters = names_of_filters.iter().enumerate();
    let mut filters = filters
        .map(|(place, name)| Filter::take(name, &mut slots[place], folder, module))
        .collect::<io::Result<Vec<_>>>()?;
    let mut configuration = filters
        .last_mut()
        .map(|filter| filter.configuration().cloned())
        .transpose()?
        .unwrap_or_default();
    if let Some(policy) = policy {
        configuration["policy"] = policy.clone();
        // Whether there is a cache, and a sidecar for it, is for the setup to say.
        without(&mut configuration, &["sidecar", "cache"]);
    }
    configuration["providers"] = engines
        .iter()
        .map(|(name, addr)| match reach {
            Reach::Cluster => json!({"name": name, "cluster": name}),
            Reach::Pool => json!({"name": name, "endpoint": addr.to_string()}),
        })
        .collect();
    let routes = at(&mut configuration, "/routes")?.as_array_mut();
    for route in routes.into_iter().flatten() {
        route["targets"] = json!(names);
        if policy.is_some() {
            without(route, &["cache"]);
        }
    }
    configure(&mut configuration);
    for filter in &mut filters {
        *filter.configuration()? = configuration.clone();
    }
    document["node"] = json!({"id": "fleet", "cluster": "fleet"});

    let clusters = at(&mut document, "/static_resources/clusters")?;
    let documented = clusters[0].take();
    let watcher = clusters.as_array().and_then(|all| all.last()).cloned();
    let mut reached = match reach {
        Reach::Cluster => engines
            .iter()
            .map(|(name, addr)| cluster(documented.clone(), name, &[*addr]))
            .collect::<io::Result<Vec<_>>>()?,
        Reach::Pool => {
            let addrs: Vec<SocketAddr> = engines.iter().map(|(_, addr)| *addr).collect();
            vec![cluster(documented.clone(), "engines", &addrs)?]
        }
    };
    for (name, addr) in others {
        reached.push(cluster(documented.clone(), name, &[*addr])?);
    }
    if let (Some(socket), Some(mut watcher)) = (sidecar, watcher) {
        *at(
            &mut watcher,
            "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/pipe/path",
        )? = json!(socket);
        reached.push(watcher);
    }
    *clusters = reached.into();
    finish(&mut document);
    Ok(Bootstrap {
        document,
        filters,
        configuration,
    })
}

impl Filter {
    /// Takes a filter out of the document, which refers to its file then.
    fn take(
        name: &'static str,
        slot: &mut Value,
        folder: &Path,
        module: &Path,
    ) -> io::Result<Self> {
        if slot["name"] != name {
            let place = &slot["name"];
            let what = format!("the configuration in envoy/ has {place} in the place of {name}");
            return Err(io::Error::other(what));
        }
        let mut typed = slot["typed_config"].take();
        *at(&mut typed, "/config/vm_config/code/local/filename")? = json!(module);
        let filter = Self {
            name,
            typed,
            version: 0,
        };
        *slot = json!({
            "name": name,
            "config_discovery": {
                "config_source": {
                    "path_config_source": {
                        "path": folder.join(filter.file()),
                        "watched_directory": {"path": folder},
                    },
                },
                "type_urls": [filter.typed["@type"]],
            },
        });
        Ok(filter)
    }

    /// Where Envoy finds it: a name in the folder of the bootstrap.
    pub(crate) fn file(&self) -> String {
        format!("{}.json", self.name)
    }

    /// It as Envoy expects it in its file.
    pub(crate) fn discovery(&self) -> String {
        let discovery = json!({
            "version_info": self.version.to_string(),
            "resources": [{
                "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
                "name": self.name,
                "typed_config": self.typed,
            }],
        });
        discovery.to_string()
    }

    /// The counter of how often Envoy has taken it.
    pub(crate) fn taken(&self) -> String {
        format!(
            "extension_config_discovery.http_filter.{}.config_reload",
            self.name
        )
    }

    /// Gives it another configuration.
    pub(crate) fn change(&mut self, configuration: &Value) -> io::Result<()> {
        *self.configuration()? = configuration.clone();
        self.version += 1;
        Ok(())
    }

    fn configuration(&mut self) -> io::Result<&mut Value> {
        at(&mut self.typed, "/config/configuration/value")
    }
}

/// The documented cluster under this name, with these endpoints.
fn cluster(mut cluster: Value, name: &str, addrs: &[SocketAddr]) -> io::Result<Value> {
    cluster["name"] = json!(name);
    cluster["load_assignment"]["cluster_name"] = json!(name);
    let endpoints = at(&mut cluster, "/load_assignment/endpoints/0/lb_endpoints")?;
    *endpoints = addrs
        .iter()
        .map(|addr| json!({"endpoint": {"address": {"socket_address": address(*addr)}}}))
        .collect();
    Ok(cluster)
}

fn without(object: &mut Value, keys: &[&str]) {
    for key in keys {
        object
            .as_object_mut()
            .and_then(|object| object.remove(*key));
    }
}

fn address(addr: SocketAddr) -> Value {
    json!({"address": addr.ip().to_string(), "port_value": addr.port()})
}

fn at<'a>(document: &'a mut Value, pointer: &str) -> io::Result<&'a mut Value> {
    document.pointer_mut(pointer).ok_or_else(|| {
        io::Error::other(format!(
            "the configuration in envoy/ has nothing at {pointer}"
        ))
    })
}
