//! A file of Envoy's as the rules look at it: its plugins, lists of filters, routes and clusters, each
//! with its path. Invariant: what the file leaves to others, such as routes by RDS, is not there, so
//! that no rule concludes anything from it.

use super::super::configuration::{self, Ours};
use super::super::value::{Walk, at, text, texts};
use super::address::{addresses, host_ip};
use rolter_core::config::{Config, Problem, Reach, Route as OurRoute};
use serde_json::Value;

/// The `root_id` of the filter of the policy.
pub(super) const POLICY: &str = "rolter_policy";
/// The header by which Envoy's routes follow a decision.
pub(super) const CLUSTER_HEADER: &str = "x-rolter-cluster";
/// The header by which a pool does.
pub(super) const POOL_HEADER: &str = "x-gateway-destination-endpoint";

pub(super) struct Envoy<'a> {
    pub(super) document: &'a Value,
    /// Each once.
    pub(super) configs: Vec<Ours>,
    pub(super) plugins: Vec<Plugin<'a>>,
    pub(super) lists: Vec<List<'a>>,
    pub(super) clusters: Vec<Cluster<'a>>,
}

/// A wasm filter of ours, wherever it is.
pub(super) struct Plugin<'a> {
    pub(super) path: String,
    pub(super) value: &'a Value,
    /// The list that it is in, and the place there.
    pub(super) list: Option<(usize, usize)>,
    /// A place in [`Envoy::configs`], where it can be read.
    pub(super) config: Option<usize>,
}

/// A list of HTTP filters that has one of ours, or a connection manager's.
pub(super) struct List<'a> {
    pub(super) path: String,
    pub(super) filters: &'a [Value],
    /// What has it, which for listeners is the connection manager, and the path to that.
    pub(super) owner: &'a Value,
    pub(super) owner_path: String,
    pub(super) routes: Vec<Route<'a>>,
    /// The listener with its path.
    pub(super) listener: Option<(String, &'a Value)>,
}

/// A route of Envoy's that leads to clusters.
pub(super) struct Route<'a> {
    pub(super) path: String,
    pub(super) value: &'a Value,
    pub(super) action: &'a Value,
    /// The route, its virtual host and the whole, with their paths: what stands there is for it.
    pub(super) levels: [(String, &'a Value); 3],
}

pub(super) struct Cluster<'a> {
    pub(super) path: String,
    pub(super) name: &'a str,
    pub(super) value: &'a Value,
}

impl<'a> Envoy<'a> {
    pub(super) fn read(document: &'a Value) -> Self {
        let mut envoy = Self {
            document,
            configs: configuration::all(document),
            plugins: Vec::new(),
            lists: Vec::new(),
            clusters: Vec::new(),
        };
        envoy.visit(&Walk::root(document), None);
        let clusters = Walk::root(document).at(&["static_resources", "clusters"]);
        let clusters = clusters.items().map(|walk| Cluster {
            name: text(walk.value, "name"),
            path: walk.path,
            value: walk.value,
        });
        envoy.clusters = clusters.collect();
        envoy
    }

    fn visit(&mut self, walk: &Walk<'a>, list: Option<(usize, usize)>) {
        if walk.value.get("vm_config").is_some() {
            let config = configuration::readable(walk.value);
            let config = config.and_then(|value| {
                let mut configs = self.configs.iter();
                configs.position(|ours| ours.value == value)
            });
            if config.is_some() || configuration::looks_ours(walk.value) {
                self.plugins.push(Plugin {
                    path: walk.path.clone(),
                    value: walk.value,
                    list,
                    config,
                });
            }
        }
        for (key, inner) in walk.fields() {
            if key == "http_filters"
                && let Some(filters) = inner.value.as_array()
            {
                let place = self.lists.len();
                self.lists.push(List {
                    filters,
                    owner: walk.value,
                    owner_path: walk.path.clone(),
                    routes: routes(walk),
                    listener: self.listener(&inner.path),
                    path: inner.path.clone(),
                });
                for (index, filter) in inner.items().enumerate() {
                    self.visit(&filter, Some((place, index)));
                }
            } else {
                self.visit(&inner, list);
            }
        }
        for inner in walk.items() {
            self.visit(&inner, list);
        }
    }

    fn listener(&self, path: &str) -> Option<(String, &'a Value)> {
        let listeners = Walk::root(self.document).at(&["static_resources", "listeners"]);
        let mut listeners = listeners.items();
        let walk = listeners.find(|walk| path.starts_with(&format!("{}.", walk.path)))?;
        Some((walk.path, walk.value))
    }

    /// Whether this is all of an Envoy, but for what it asks others for, and not a part of a file.
    pub(super) fn is_whole(&self) -> bool {
        self.document.get("static_resources").is_some()
    }

    /// What can be read of the configurations.
    pub(super) fn configs(&self) -> impl Iterator<Item = (&Ours, &Config)> {
        let configs = self.configs.iter();
        configs.filter_map(|ours| Some((ours, ours.config.as_ref()?)))
    }

    pub(super) fn config_of(&self, plugin: &Plugin<'_>) -> Option<&Config> {
        self.configs.get(plugin.config?)?.config.as_ref()
    }

    /// The plugins in a list, in its order.
    pub(super) fn plugins_of(&self, list: usize) -> impl Iterator<Item = (usize, &Plugin<'a>)> {
        let plugins = self.plugins.iter();
        plugins.filter_map(move |plugin| {
            let (of, place) = plugin.list?;
            (of == list).then_some((place, plugin))
        })
    }

    /// Those that route in a list.
    pub(super) fn routing_in(&self, list: usize) -> impl Iterator<Item = (usize, &Plugin<'a>)> {
        let plugins = self.plugins_of(list);
        plugins.filter(|(_, plugin)| !plugin.is_of_policy())
    }

    /// The connection managers in which a filter routes, with the first such filter's configuration.
    pub(super) fn routed(&self) -> impl Iterator<Item = (&List<'a>, &Ours, &Config)> {
        let lists = self.lists.iter().enumerate();
        lists.filter_map(|(place, list)| {
            let (_, plugin) = self.routing_in(place).next()?;
            let ours = self.configs.get(plugin.config?)?;
            Some((list, ours, ours.config.as_ref()?))
        })
    }

    /// The routes that follow a decision, each with the configuration by which it is made.
    pub(super) fn following(&self) -> impl Iterator<Item = (&Route<'a>, &Config, &List<'a>)> {
        self.routed().flat_map(move |(list, _, config)| {
            let routes = list.routes.iter();
            let routes = routes.filter(|route| self.follows(route));
            routes.map(move |route| (route, config, list))
        })
    }

    /// Whether a route goes where a decision says.
    pub(super) fn follows(&self, route: &Route<'_>) -> bool {
        route.by_header() || self.pools_of(route).any(Cluster::reads_ours)
    }

    /// The clusters that a route leads to which have the policy `override_host`.
    pub(super) fn pools_of(&self, route: &Route<'_>) -> impl Iterator<Item = &Cluster<'a>> {
        let clusters = route.clusters().filter_map(|name| self.cluster(name));
        clusters.filter(|cluster| cluster.overriding().is_some())
    }

    pub(super) fn cluster(&self, name: &str) -> Option<&Cluster<'a>> {
        self.clusters.iter().find(|cluster| cluster.name == name)
    }
}

fn routes<'a>(manager: &Walk<'a>) -> Vec<Route<'a>> {
    let whole = manager.at(&["route_config"]);
    let hosts = whole.at(&["virtual_hosts"]).items();
    let routes = hosts.flat_map(|host| {
        let routes: Vec<_> = host.at(&["routes"]).items().collect();
        let whole = &whole;
        let routes = routes.into_iter().filter_map(move |route| {
            let action = route.value.get("route")?;
            Some(Route {
                path: route.path.clone(),
                value: route.value,
                action,
                levels: [
                    (route.path, route.value),
                    (host.path.clone(), host.value),
                    (whole.path.clone(), whole.value),
                ],
            })
        });
        routes.collect::<Vec<_>>()
    });
    routes.collect()
}

impl Plugin<'_> {
    pub(super) fn is_of_policy(&self) -> bool {
        self.value["root_id"] == POLICY
    }

    pub(super) fn vm_id(&self) -> &str {
        text(&self.value["vm_config"], "vm_id")
    }

    pub(super) fn problem(&self, field: &str, what: impl Into<String>) -> Problem {
        problem(&format!("{}.{field}", self.path), what)
    }
}

impl List<'_> {
    /// Whether a filter in it is in another file, so that it may be any.
    pub(super) fn has_discovered(&self) -> bool {
        let mut filters = self.filters.iter();
        filters.any(|filter| filter.get("config_discovery").is_some())
    }

    /// What makes filters what they are: the type of their configuration, without the version.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (usize, &str)> {
        let kinds = self.filters.iter().map(|filter| {
            let config = &filter["typed_config"];
            let is_wrapped = config.get("type_url").is_some();
            let kind = text(config, if is_wrapped { "type_url" } else { "@type" });
            kind.rsplit('.').next().unwrap_or_default()
        });
        kinds.enumerate()
    }
}

impl<'a> Route<'a> {
    /// Whether the filter's header names the cluster, or one of those among which Envoy chooses.
    pub(super) fn by_header(&self) -> bool {
        self.headers()
            .any(|header| header.eq_ignore_ascii_case(CLUSTER_HEADER))
    }

    /// The names of the clusters that it leads to.
    pub(super) fn clusters(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let ways = self.ways().into_iter();
        let names = ways.flat_map(|way| ["cluster", "name"].map(|key| text(way, key)));
        names.filter(|name| !name.is_empty())
    }

    /// The headers that name clusters in their place.
    pub(super) fn headers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let ways = self.ways().into_iter();
        let headers = ways.map(|way| text(way, "cluster_header"));
        headers.filter(|header| !header.is_empty())
    }

    /// What names a cluster each: its action, or a part of that.
    fn ways(&self) -> Vec<&'a Value> {
        let weighted = at(self.action, "/weighted_clusters/clusters").as_array();
        weighted.map_or_else(|| vec![self.action], |weighted| weighted.iter().collect())
    }

    /// The field by which it leads to clusters, unless an extension says where.
    pub(super) fn field(&self) -> Option<&'static str> {
        let mut fields = ["cluster", "weighted_clusters", "cluster_header"].into_iter();
        fields.find(|field| self.action.get(field).is_some())
    }

    /// Whether it matches only with the header that the filter sets, which is to follow as well.
    pub(super) fn matches_header(&self) -> bool {
        let headers = at(self.value, "/match/headers").as_array();
        let mut headers = headers.into_iter().flatten();
        headers.any(|header| text(header, "name").eq_ignore_ascii_case(CLUSTER_HEADER))
    }

    pub(super) fn problem(&self, field: &str, what: impl Into<String>) -> Problem {
        problem(&format!("{}.{field}", self.path), what)
    }
}

impl<'a> Cluster<'a> {
    pub(super) fn problem(&self, field: &str, what: impl Into<String>) -> Problem {
        problem(&format!("{}.{field}", self.path), what)
    }

    /// Its policy `override_host`, with the path to that, below the cluster.
    pub(super) fn overriding(&self) -> Option<(String, &'a Value)> {
        let policies = Walk::new(String::new(), self.value);
        let policies = policies.at(&["load_balancing_policy", "policies"]);
        let configs = policies
            .items()
            .map(|policy| policy.at(&["typed_extension_config", "typed_config"]));
        let mut overriding =
            configs.filter(|config| text(config.value, "@type").ends_with(".OverrideHost"));
        let found = overriding.next()?;
        Some((found.path, found.value))
    }

    /// Whether it goes where the filter says, if it has that policy.
    pub(super) fn reads_ours(&self) -> bool {
        let Some((_, policy)) = self.overriding() else {
            return false;
        };
        let sources = policy["override_host_sources"].as_array();
        let mut sources = sources.into_iter().flatten();
        sources.any(|source| text(source, "header").eq_ignore_ascii_case(POOL_HEADER))
    }

    /// The addresses of its endpoints, as `host:port` or `unix://path`, each address in the one
    /// spelling that configurations have when they are read.
    pub(super) fn endpoints(&self) -> Vec<String> {
        let mut found = Vec::new();
        addresses(&self.value["load_assignment"], &mut found);
        found
    }

    /// Whether each endpoint is a line of the file: none is a name, none comes from elsewhere.
    pub(super) fn is_literal(&self) -> bool {
        let endpoints = self.endpoints();
        !endpoints.is_empty() && endpoints.iter().all(|endpoint| host_ip(endpoint).is_some())
    }

    /// Its options for HTTP.
    pub(super) fn http_options(&self) -> &'a Value {
        const OPTIONS: &str = "/typed_extension_protocol_options/\
                               envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
        at(self.value, OPTIONS)
    }

    /// The field below it by which it speaks HTTP/2, if it does.
    pub(super) fn speaks_http2(&self) -> Option<&'static str> {
        let options = &self.http_options()["explicit_http_config"];
        if options.get("http2_protocol_options").is_some() {
            return Some("typed_extension_protocol_options");
        }
        let old = "http2_protocol_options";
        self.value.get(old).map(|_| old)
    }
}

/// Whether a configuration has a route by this way.
pub(super) fn reaches(config: &Config, reach: Reach) -> bool {
    config.routes.iter().any(|route| route.reach == reach)
}

/// The places of a route's targets.
pub(super) fn targets(route: &OurRoute) -> impl Iterator<Item = usize> {
    let groups = route.groups.iter();
    groups.flat_map(|group| group.targets.iter().copied())
}

/// The texts under a key, of all levels of a route, with the path to the key.
pub(super) fn on_levels<'a>(
    route: &Route<'a>,
    key: &'static str,
) -> impl Iterator<Item = (String, Vec<&'a str>)> {
    let levels = route.levels.clone().into_iter();
    levels.map(move |(path, value)| (format!("{path}.{key}"), texts(&value[key])))
}

pub(super) fn problem(path: &str, what: impl Into<String>) -> Problem {
    Problem {
        path: path.to_owned(),
        what: what.into(),
    }
}
