//! What Istio makes of an `EnvoyFilter`: its patches applied to what `istiod` sends, as `istiod` applies
//! them, and what its agent then makes of the module's address. Whatever is not known here, or matches
//! nothing, is an error, so that no patch is without effect.
//!
//! It is what Istio's sources say, written down once more, on a base written by hand. That Istio does
//! the same in a cluster it cannot show: what its injection makes of pods, whether its agent fetches
//! the image, and whom istiod gives which Secrets.

use serde_json::{Value, json};
use std::path::Path;

/// Of each message that is merged, the fields of which it has one.
const ONE_OF: [&[&str]; 1] = [&["cluster", "cluster_header", "weighted_clusters"]];

/// What an Envoy gets.
pub struct Mesh {
    /// Everything but the configurations of extensions.
    pub bootstrap: Value,
    /// These, by name.
    pub extensions: Vec<Value>,
}

/// The filters that Envoy fetches, by where they are in a listener.
const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";

impl Mesh {
    /// Applies an `EnvoyFilter` to what an Envoy in this context gets without.
    ///
    /// # Errors
    /// Where a patch has no effect, or is not understood.
    pub fn of(bootstrap: Value, filter: &Value, context: &str) -> Result<Self, String> {
        let mut mesh = Self {
            bootstrap,
            extensions: Vec::new(),
        };
        let patches = filter["spec"]["configPatches"].as_array();
        for (place, patch) in patches.into_iter().flatten().enumerate() {
            let what = format!("configPatches[{place}], {}", patch["applyTo"]);
            let wrong = |why: String| format!("{what}: {why}");
            if patch["match"]["context"] != context {
                return Err(wrong("it is for another context".into()));
            }
            if mesh.apply(patch).map_err(wrong)? == 0 {
                return Err(wrong("it matches nothing".into()));
            }
        }
        Ok(mesh)
    }

    /// Applies a patch, and tells how much it matches.
    fn apply(&mut self, patch: &Value) -> Result<usize, String> {
        let Patch {
            to,
            operation,
            value,
            wanted,
        } = Patch::read(patch)?;
        let resources = &mut self.bootstrap["static_resources"];
        match (to, operation) {
            ("EXTENSION_CONFIG", "ADD") => {
                only(wanted, &["context"])?;
                self.extensions.push(value.clone());
                Ok(1)
            }
            ("CLUSTER", "ADD") => {
                only(wanted, &["context"])?;
                let clusters = items(&mut resources["clusters"]);
                if clusters.iter().any(|known| known["name"] == value["name"]) {
                    return Err(format!("there is a cluster {} already", value["name"]));
                }
                clusters.push(value.clone());
                Ok(1)
            }
            ("LISTENER", "MERGE") => {
                only(wanted, &["context", "listener"])?;
                only(&wanted["listener"], &["portNumber"])?;
                let mut matches = 0;
                for listener in listeners(resources, wanted) {
                    merge(listener, value);
                    matches += 1;
                }
                Ok(matches)
            }
            ("NETWORK_FILTER", "MERGE") => {
                only(wanted, &["context", "listener"])?;
                only(&wanted["listener"], &["portNumber", "filterChain"])?;
                only(&wanted["listener"]["filterChain"], &["filter"])?;
                only(&wanted["listener"]["filterChain"]["filter"], &["name"])?;
                let mut matches = 0;
                for filter in network_filters(resources, wanted) {
                    if value["typed_config"]["@type"] != filter["typed_config"]["@type"] {
                        return Err("the filter is of another type".into());
                    }
                    merge(filter, value);
                    matches += 1;
                }
                Ok(matches)
            }
            ("HTTP_FILTER", "INSERT_BEFORE") => {
                only(wanted, &["context", "listener"])?;
                only(&wanted["listener"], &["portNumber", "filterChain"])?;
                let filter = &wanted["listener"]["filterChain"]["filter"];
                only(filter, &["name", "subFilter"])?;
                only(&filter["subFilter"], &["name"])?;
                let mut matches = 0;
                for manager in network_filters(resources, wanted) {
                    let filters = items(&mut manager["typed_config"]["http_filters"]);
                    let place = filters
                        .iter()
                        .position(|known| known["name"] == filter["subFilter"]["name"]);
                    if let Some(place) = place {
                        filters.insert(place, value.clone());
                        matches += 1;
                    }
                }
                Ok(matches)
            }
            ("HTTP_ROUTE", "MERGE") => {
                only(wanted, &["context", "routeConfiguration"])?;
                let wanted = &wanted["routeConfiguration"];
                only(wanted, &["name", "vhost"])?;
                only(&wanted["vhost"], &["name", "route"])?;
                only(&wanted["vhost"]["route"], &["name", "action"])?;
                let mut matches = 0;
                for route in routes(resources, wanted)? {
                    merge(route, value);
                    matches += 1;
                }
                Ok(matches)
            }
            _ => Err(format!("nobody here knows how to {operation} it")),
        }
    }

    /// Gives Envoy its extensions in files of this folder, each with the module from this file: what
    /// the agent does, which serves them to Envoy itself.
    ///
    /// # Errors
    /// Where they are not what the agent takes, or where Envoy would ask for one that is not there.
    pub fn fetch(&mut self, folder: &Path, module: &Path) -> Result<(), String> {
        let mut fetched = Vec::new();
        for manager in network_filters(&mut self.bootstrap["static_resources"], &Value::Null) {
            for filter in items(&mut manager["typed_config"]["http_filters"]) {
                let name = filter["name"].clone();
                let Some(discovery) = filter.get_mut("config_discovery") else {
                    continue;
                };
                let mut named = self.extensions.iter();
                let extension = named.find(|extension| extension["name"] == name);
                let extension = extension.ok_or(format!("nobody has a configuration of {name}"))?;
                if discovery["config_source"]["ads"] != json!({}) {
                    return Err(format!("{name} is not asked of istiod"));
                }
                if discovery["type_urls"] != json!([extension["typed_config"]["@type"]]) {
                    return Err(format!("{name} is of a type that the filter does not take"));
                }
                let file = folder.join(format!("{}.json", name.as_str().unwrap_or_default()));
                let resource = with_module(extension, module)?;
                let answer = json!({"version_info": "1", "resources": [resource]});
                std::fs::write(&file, answer.to_string()).map_err(|error| error.to_string())?;
                discovery["config_source"] = json!({"path_config_source": {"path": file}});
                fetched.push(name);
            }
        }
        let unused = self.extensions.iter();
        let mut unused = unused.filter(|extension| !fetched.contains(&extension["name"]));
        match unused.next() {
            Some(extension) => Err(format!("no filter asks for {}", extension["name"])),
            None => Ok(()),
        }
    }
}

struct Patch<'a> {
    to: &'a str,
    operation: &'a str,
    value: &'a Value,
    wanted: &'a Value,
}

impl<'a> Patch<'a> {
    fn read(patch: &'a Value) -> Result<Self, String> {
        only(patch, &["applyTo", "match", "patch"])?;
        only(&patch["patch"], &["operation", "value"])?;
        Ok(Self {
            to: patch["applyTo"].as_str().unwrap_or_default(),
            operation: patch["patch"]["operation"].as_str().unwrap_or_default(),
            value: &patch["patch"]["value"],
            wanted: &patch["match"],
        })
    }
}

/// What the agent makes of an extension: where its code is remote, a file.
fn with_module(extension: &Value, module: &Path) -> Result<Value, String> {
    let mut resource = extension.clone();
    resource["@type"] = json!("type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig");
    let code = &mut resource["typed_config"]["config"]["vm_config"]["code"];
    let remote = &code["remote"];
    let uri = remote["http_uri"]["uri"].as_str().unwrap_or_default();
    let digest = remote["sha256"].as_str().unwrap_or_default();
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_known = remote["http_uri"]["timeout"].is_string()
        && remote["http_uri"]["cluster"].is_string()
        && is_digest;
    // By a tag it could be another one than the digest.
    let image = uri.strip_suffix(&format!("@sha256:{digest}"));
    let image = image.and_then(|image| image.strip_prefix("oci://"));
    let is_by_digest = image.is_some_and(|image| {
        let name = image.rsplit('/').next().unwrap_or_default();
        !name.contains([':', '@'])
    });
    if !is_by_digest || !is_known {
        return Err(format!("the agent cannot fetch {code}"));
    }
    *code = json!({"local": {"filename": module}});
    Ok(resource)
}

/// The listeners that a match is for; all of them, without one.
fn listeners<'a>(
    resources: &'a mut Value,
    wanted: &'a Value,
) -> impl Iterator<Item = &'a mut Value> {
    let port = &wanted["listener"]["portNumber"];
    let listeners = items(&mut resources["listeners"]).iter_mut();
    listeners.filter(move |listener| {
        port.is_null() || listener["address"]["socket_address"]["port_value"] == *port
    })
}

/// The connection managers of the listeners that a match is for, where it is for these.
fn network_filters<'a>(
    resources: &'a mut Value,
    wanted: &'a Value,
) -> impl Iterator<Item = &'a mut Value> {
    let name = &wanted["listener"]["filterChain"]["filter"]["name"];
    let is_wanted = name.is_null() || name == CONNECTION_MANAGER;
    let chains =
        listeners(resources, wanted).flat_map(|listener| items(&mut listener["filter_chains"]));
    let filters = chains.flat_map(|chain| items(&mut chain["filters"]));
    filters.filter(move |filter| is_wanted && filter["name"] == CONNECTION_MANAGER)
}

/// The routes that a match is for.
fn routes<'a>(resources: &'a mut Value, wanted: &'a Value) -> Result<Vec<&'a mut Value>, String> {
    let fits = |wanted: &Value, name: &Value| wanted.is_null() || wanted == name;
    let (host, route) = (&wanted["vhost"]["name"], &wanted["vhost"]["route"]);
    if !fits(&route["action"], &json!("ROUTE")) {
        return Err("routes of that action are not known here".into());
    }
    let tables = network_filters(resources, &Value::Null)
        .map(|manager| &mut manager["typed_config"]["route_config"])
        .filter(|table| fits(&wanted["name"], &table["name"]));
    let hosts = tables
        .flat_map(|table| items(&mut table["virtual_hosts"]))
        .filter(|known| fits(host, &known["name"]));
    let routes = hosts
        .flat_map(|host| items(&mut host["routes"]))
        .filter(|known| fits(&route["name"], &known["name"]) && known.get("route").is_some());
    Ok(routes.collect())
}

/// Merges as `istiod` does: fields into objects, lists at the end of lists, anything else in the place
/// of what was there.
pub fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for group in ONE_OF {
                if group.iter().any(|field| patch.contains_key(*field)) {
                    into.retain(|field, _| !group.contains(&&**field) || patch.contains_key(field));
                }
            }
            for (field, value) in patch {
                // Of these all is replaced, as they are values of a map.
                if field.contains('.') {
                    into.insert(field.clone(), value.clone());
                } else {
                    merge(into.entry(field).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(into), Value::Array(patch)) => into.extend(patch.iter().cloned()),
        (into, patch) => *into = patch.clone(),
    }
}

/// The elements of a list; none where there is none.
fn items(list: &mut Value) -> &mut Vec<Value> {
    if !list.is_array() {
        *list = json!([]);
    }
    match list {
        Value::Array(items) => items,
        _ => unreachable!("it is a list by now"),
    }
}

/// Whether an object has these fields alone.
fn only(object: &Value, fields: &[&str]) -> Result<(), String> {
    let has = object
        .as_object()
        .into_iter()
        .flat_map(|object| object.keys());
    let mut unknown = has.filter(|field| !fields.contains(&field.as_str()));
    match unknown.next() {
        Some(field) => Err(format!("nobody here knows what {field:?} means")),
        None => Ok(()),
    }
}
