{{/* Names and labels. */}}
{{- define "rolter.name" -}}
{{- if contains "rolter" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-rolter" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "rolter.selector" -}}
app.kubernetes.io/name: rolter
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* What a Gateway finds the pods by, as it looks for them in all namespaces. */}}
{{- define "rolter.gateway" -}}
{{ include "rolter.selector" . }}
rolter-namespace: {{ .Release.Namespace }}
{{- end }}

{{- define "rolter.labels" -}}
{{ include "rolter.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* An image by its name in the registry. */}}
{{- define "rolter.image" -}}
{{- $values := .root.Values -}}
{{ $values.image.registry }}/{{ .name }}:{{ $values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* The document, with the sidecar's part filled in, and without fields for a log that is off. */}}
{{- define "rolter.document" -}}
{{- $document := deepCopy .Values.rolter }}
{{- if and (eq .Values.mode "envoy") (not .Values.envoy.accessLog) (not (hasKey $document "log_fields")) }}
{{- $_ := set $document "log_fields" false }}
{{- end }}
{{- $sidecar := $document.sidecar | default dict }}
{{- if .Values.sidecar.enabled }}
{{- $fixed := dict "cluster" "rolter_sidecar" "listen" "unix:///run/rolter/sidecar.sock" }}
{{- range $key, $value := $fixed }}
{{- if ne (get $sidecar $key | default $value) $value }}
{{- fail (printf "rolter.sidecar.%s is for the chart to say; leave it out" $key) }}
{{- end }}
{{- end }}
{{- $metrics := dict "metrics_listen" (printf "0.0.0.0:%d" (int .Values.sidecar.metricsPort)) "allow_remote" true }}
{{- $_ := set $document "sidecar" (merge $sidecar $fixed $metrics) }}
{{- else if $sidecar }}
{{- fail "rolter.sidecar needs the sidecar; write sidecar.enabled: true, or leave it out" }}
{{- end }}
{{- toYaml $document }}
{{- end }}

{{/* pool or cluster: how all routes reach their targets. */}}
{{- define "rolter.reach" -}}
{{- $reach := list }}
{{- range .Values.rolter.routes }}{{ $reach = append $reach (.reach | default "cluster") }}{{ end }}
{{- if ne (len (uniq $reach)) 1 }}
{{- fail "rolter.routes: write the same reach for all routes, pool or cluster; an Envoy route cannot do both" }}
{{- end }}
{{- first $reach }}
{{- end }}

{{/* Whether some route has a policy. */}}
{{- define "rolter.policy" -}}
{{- $found := .Values.rolter.policy }}
{{- range .Values.rolter.routes }}{{ $found = or $found .policy }}{{ end }}
{{- if $found }}true{{ end }}
{{- end }}

{{/* Whether some provider is for certain callers. */}}
{{- define "rolter.keys" -}}
{{- $found := false }}
{{- range .Values.rolter.providers }}{{ $found = or $found .allowed_keys }}{{ end }}
{{- if $found }}true{{ end }}
{{- end }}

{{/* Whether some endpoint is a DNS name. */}}
{{- define "rolter.named" -}}
{{- $found := false }}
{{- range .Values.rolter.providers }}
{{- with .endpoint }}{{ $found = or $found (include "rolter.address" (dict "address" . "path" "rolter.providers[].endpoint") | fromJson).name }}{{ end }}
{{- end }}
{{- if $found }}true{{ end }}
{{- end }}

{{/* What the listener's connection manager has beside what any has. */}}
{{- define "rolter.manager" -}}
{{- $tokens := false }}
{{- range .Values.rolter.routes }}
{{- if eq (.strategy | default "") "precise_cache_aware" }}
{{- $tokens = or $tokens (not (.precise_cache_aware | default dict).tokenize) }}
{{- end }}
{{- end }}
{{- if $tokens }}
# Room for token ids, which clients send along.
max_request_headers_kb: 1024
{{- end }}
{{- if or (eq .Values.mode "envoy") (include "rolter.policy" .) (include "rolter.keys" .) }}
# One spelling for each path: a route is found by it, with its policy and its targets.
normalize_path: true
merge_slashes: true
path_with_escaped_slashes_action: REJECT_REQUEST
{{- end }}
{{- end }}

{{/* The root_ids of the filters, in their order. */}}
{{- define "rolter.filters" -}}
{{ if include "rolter.policy" . }}rolter_policy {{ end }}rolter
{{- end }}

{{/* A filter's typed_config, from its root_id and where its code is. */}}
{{- define "rolter.wasm" -}}
"@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
config:
  name: {{ .id }}
  root_id: {{ .id }}
  # Without it every request with a body hangs.
  allow_on_headers_stop_iteration: true
  failure_policy: FAIL_RELOAD
  vm_config:
    # What they learn is shared between filters of one vm_id.
    vm_id: rolter
    runtime: envoy.wasm.runtime.v8
    code:
      {{- .code | nindent 6 }}
  configuration:
    "@type": type.googleapis.com/google.protobuf.Struct
    value:
      {{- include "rolter.document" .root | nindent 6 }}
{{- end }}

{{/* host and port of an address, as a JSON object. */}}
{{- define "rolter.address" -}}
{{- if not (regexMatch "^[^:]+:[0-9]+$|^\\[[^]]+\\]:[0-9]+$" .address) }}
{{- fail (printf "%s: %q is no address; write HOST:PORT" .path .address) }}
{{- end }}
{{- $port := regexFind "[0-9]+$" .address }}
{{- $host := trimSuffix (printf ":%s" $port) .address | trimPrefix "[" | trimSuffix "]" }}
{{- dict "host" $host "port" (atoi $port) "name" (not (regexMatch "^[0-9.]+$|:" $host)) | toJson }}
{{- end }}

{{/* A cluster's endpoints, from a list of addresses. */}}
{{- define "rolter.endpoints" -}}
type: STRICT_DNS
# As the sidecar does it. A name is looked up every five seconds.
dns_lookup_family: V4_PREFERRED
connect_timeout: 1s
circuit_breakers:
  # The engines queue for themselves; Envoy's defaults would answer 503.
  thresholds:
    - { max_connections: 100000, max_pending_requests: 100000, max_requests: 100000, max_retries: 100000 }
load_assignment:
  cluster_name: {{ .name }}
  endpoints:
    - lb_endpoints:
        {{- range .addresses }}
        {{- $address := include "rolter.address" (dict "address" . "path" $.path) | fromJson }}
        - endpoint: { address: { socket_address: { address: {{ $address.host | quote }}, port_value: {{ int $address.port }} } } }
        {{- end }}
{{- end }}

{{/* The pool's fallback. */}}
{{- define "rolter.fallback" -}}
{{- if .Values.pool.fallback }}{{ .Values.pool.fallback }}
{{- else if and (include "rolter.named" .) (not (include "rolter.keys" .)) }}least_request
{{- else }}none
{{- end }}
{{- end }}

{{/* Mutual TLS by the mesh's certificates, which Istio's agent has. */}}
{{- define "rolter.mtls" -}}
transport_socket:
  name: envoy.transport_sockets.tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    common_tls_context:
      alpn_protocols: [istio]
      tls_certificate_sds_secret_configs:
        - name: default
          sds_config: &sds
            resource_api_version: V3
            initial_fetch_timeout: 0s
            api_config_source:
              api_type: GRPC
              transport_api_version: V3
              set_node_on_first_message_only: true
              grpc_services: [{ envoy_grpc: { cluster_name: sds-grpc } }]
      combined_validation_context:
        default_validation_context:
          match_typed_subject_alt_names:
            {{- range .Values.istio.mtls.subjectAltNames }}
            - { san_type: URI, matcher: { exact: {{ . | quote }} } }
            {{- end }}
        validation_context_sds_secret_config: { name: ROOTCA, sds_config: *sds }
{{- end }}

{{/* All clusters of Envoy, as a list. */}}
{{- define "rolter.clusters" -}}
{{- $pool := list }}{{ $engines := list }}
{{- range $provider := .Values.rolter.providers }}
{{- with $provider.endpoint }}{{ $pool = append $pool . }}{{ end }}
{{- with $provider.cluster }}
{{- $engines = append $engines . }}
{{- if not (or (hasKey $.Values.clusters .) (and (ne $.Values.mode "envoy") (contains "|" .))) }}
{{- fail (printf "rolter.providers: the cluster %q of %q is unknown; write clusters: { %s: HOST:PORT }" . $provider.name .) }}
{{- end }}
{{- end }}
{{- end }}
{{- $mtls := and (ne .Values.mode "envoy") .Values.istio.mtls.enabled }}
{{- if eq (include "rolter.reach" .) "pool" }}
{{- if not $pool }}{{ fail "rolter.providers: routes with reach: pool need providers with an endpoint; write HOST:PORT" }}{{ end }}
- name: rolter_engines
  {{- include "rolter.endpoints" (dict "name" "rolter_engines" "addresses" $pool "path" "rolter.providers[].endpoint") | nindent 2 }}
  {{- if $mtls }}{{ include "rolter.mtls" . | nindent 2 }}{{ end }}
  load_balancing_policy:
    policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.override_host
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost
            override_host_sources: [{ header: x-gateway-destination-endpoint }]
            fallback_policy:
              policies:
                - typed_extension_config:
                    {{- if eq (include "rolter.fallback" .) "none" }}
                    # No endpoint is in the subset that this asks for.
                    name: envoy.load_balancing_policies.subset
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.subset.v3.Subset
                      fallback_policy: NO_FALLBACK
                      subset_selectors: [{ keys: [none] }]
                      subset_lb_policy:
                        policies:
                          - typed_extension_config:
                              name: envoy.load_balancing_policies.round_robin
                              typed_config:
                                "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
                    {{- else }}
                    name: envoy.load_balancing_policies.least_request
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest
                    {{- end }}
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      explicit_http_config: { http_protocol_options: {} }
      # The engines need not see the ranking.
      http_filters:
        - name: envoy.filters.http.header_mutation
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
            mutations: { request_mutations: [{ remove: x-gateway-destination-endpoint }] }
        - name: envoy.filters.http.upstream_codec
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec
{{- end }}
{{- range $name, $address := .Values.clusters }}
- name: {{ $name }}
  {{- include "rolter.endpoints" (dict "name" $name "addresses" (list $address) "path" (printf "clusters.%s" $name)) | nindent 2 }}
  {{- if and $mtls (has $name $engines) }}{{ include "rolter.mtls" $ | nindent 2 }}{{ end }}
{{- end }}
{{- if .Values.sidecar.enabled }}
- name: rolter_sidecar
  type: STATIC
  connect_timeout: 1s
  circuit_breakers:
    thresholds:
      - { max_connections: 512, max_pending_requests: 100000, max_requests: 100000 }
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      common_http_protocol_options: { idle_timeout: 10s }
      explicit_http_config: { http_protocol_options: {} }
  load_assignment:
    cluster_name: rolter_sidecar
    endpoints:
      - lb_endpoints:
          - endpoint: { address: { pipe: { path: /run/rolter/sidecar.sock } } }
{{- end }}
{{- end }}

{{/* What the Envoy route of the engines has, beside its match. */}}
{{- define "rolter.route" -}}
request_body_buffer_limit: {{ int64 .Values.limits.request_body_buffer_limit }}
{{- if eq (include "rolter.reach" .) "cluster" }}
request_headers_to_remove: [x-rolter-cluster]
route:
  cluster_header: x-rolter-cluster
{{- else }}
route:
  cluster: rolter_engines
{{- end }}
  # An answer may take minutes; what must not be long is silence.
  timeout: 0s
  idle_timeout: 300s
  retry_policy:
    {{- if eq (include "rolter.reach" .) "cluster" }}
    # A retry stays on the target that was picked.
    retry_on: connect-failure,refused-stream,reset
    num_retries: 1
    {{- else }}
    retry_on: connect-failure,refused-stream,reset,retriable-status-codes
    retriable_status_codes: [429, 503]
    # No more than there are further targets, for which the filter sees.
    num_retries: {{ int .Values.pool.retries }}
    retry_back_off: { base_interval: 0.005s, max_interval: 0.05s }
    {{- end }}
{{- end }}

{{/* Labels of the filter's metrics. */}}
{{- define "rolter.stats" -}}
stats_tags:
  {{- range list "route" "target" "reason" "outcome" "slot" "vm" "rule" "plugin" "kind" "basis" }}
  - { tag_name: {{ . }}, regex: "(;{{ . }}=([^;]+))" }
  {{- end }}
histogram_bucket_settings:
  {{- range list "decision" "policy" }}
  - match: { prefix: wasmcustom.rolter_{{ . }}_microseconds }
    buckets: [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]
  {{- end }}
  {{- range list "cache_lookup" "policy_plugin" }}
  - match: { prefix: wasmcustom.rolter_{{ . }}_microseconds }
    buckets: [100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000]
  {{- end }}
{{- end }}

{{/* What the Service and the Gateway are for, and at which port. */}}
{{- define "rolter.protocol" -}}
{{ if and (eq .Values.mode "istio-gateway") .Values.istio.gateway.tls }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{- define "rolter.port" -}}
{{ int .Values.service.port | default (ternary 443 80 (eq (include "rolter.protocol" .) "HTTPS")) }}
{{- end }}

{{/* What no container of the chart may do. */}}
{{- define "rolter.confined" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: { drop: [ALL] }
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{/* The container of the sidecar, an init container that keeps running: it is there before Envoy and
until Envoy has ended. It must be of the same user as Envoy, as nobody else may write to its socket. */}}
{{- define "rolter.sidecar" -}}
name: rolter-sidecar
restartPolicy: Always
image: {{ include "rolter.image" (dict "root" .root "name" .root.Values.sidecar.image) | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: [run, --config, /etc/rolter/rolter.yaml]
{{- with .root.Values.sidecar.env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - { name: rolter-metrics, containerPort: {{ int .root.Values.sidecar.metricsPort }} }
{{- if .probes }}
# Envoy starts once DNS has answered for the names of engines, or has not for a minute.
startupProbe:
  httpGet: { path: /readyz, port: rolter-metrics }
  periodSeconds: 1
  failureThreshold: 90
livenessProbe:
  httpGet: { path: /healthz, port: rolter-metrics }
  periodSeconds: 10
  failureThreshold: 6
{{- end }}
resources:
  {{- toYaml .root.Values.sidecar.resources | nindent 2 }}
securityContext:
  runAsUser: {{ .user }}
  runAsGroup: {{ .user }}
  {{- include "rolter.confined" . | nindent 2 }}
volumeMounts:
  - { name: rolter-run, mountPath: /run/rolter }
  - { name: rolter-config, mountPath: /etc/rolter, readOnly: true }
{{- end }}

{{/* Its volumes. */}}
{{- define "rolter.volumes" -}}
- name: rolter-run
  emptyDir: { medium: Memory, sizeLimit: 1Mi }
- name: rolter-config
  configMap:
    name: {{ include "rolter.name" . }}
    items: [{ key: rolter.yaml, path: rolter.yaml }]
{{- end }}

{{/* Where pods of the chart are placed. */}}
{{- define "rolter.placement" -}}
{{- if .Values.topologySpread.enabled }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ .Values.topologySpread.topologyKey }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "rolter.selector" . | nindent 8 }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $.Values $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* host and port of the Service that clients mean. */}}
{{- define "rolter.host" -}}
{{- $host := .Values.istio.host }}{{ $port := int .Values.istio.hostPort }}
{{- range .Values.rolter.providers }}
{{- with .endpoint }}
{{- $address := include "rolter.address" (dict "address" . "path" "rolter.providers[].endpoint") | fromJson }}
{{- if $address.name }}
{{- $host = $host | default $address.host }}{{ $port = $port | default (int $address.port) }}
{{- end }}
{{- end }}
{{- end }}
{{- if not (and $host $port) }}
{{- fail "istio.host: no endpoint is a DNS name that could be taken; write host and hostPort of the Service that clients mean" }}
{{- end }}
{{- dict "host" $host "port" $port | toJson }}
{{- end }}
