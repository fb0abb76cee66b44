{{/* mode: envoy, the whole file. envoy/pool.yaml and envoy/envoy.yaml explain what is in it. */}}
{{- define "rolter.envoy" -}}
admin:
  address:
    socket_address: { address: 127.0.0.1, port_value: 9901 }

static_resources:
  listeners:
    - name: llm
      address:
        socket_address: { address: 0.0.0.0, port_value: {{ int .Values.port }} }
      per_connection_buffer_limit_bytes: {{ int64 .Values.limits.per_connection_buffer_limit_bytes }}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: llm
                codec_type: AUTO
                upgrade_configs: [{ upgrade_type: websocket }]
                stream_idle_timeout: 0s
                {{- include "rolter.manager" . | nindent 16 }}
                {{- if .Values.envoy.accessLog }}
                access_log:
                  - name: envoy.access_loggers.stdout
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog
                      log_format:
                        json_format:
                          time: "%START_TIME%"
                          method: "%REQ(:METHOD)%"
                          path: "%REQ(:PATH)%"
                          status: "%RESPONSE_CODE%"
                          flags: "%RESPONSE_FLAGS%"
                          details: "%RESPONSE_CODE_DETAILS%"
                          {{- range list "route" "target" "reason" "match_percent" "prompt_bytes" "tried" "cache" "cache_detail" }}
                          {{ . }}: "%FILTER_STATE(wasm.rolter_{{ . }}:PLAIN)%"
                          {{- end }}
                          {{- if include "rolter.policy" . }}
                          {{- range list "withheld" "findings" "cost_basis" "prompt_tokens" "completion_tokens" "cached_tokens" }}
                          {{ . }}: "%FILTER_STATE(wasm.rolter_{{ . }}:PLAIN)%"
                          {{- end }}
                          {{- end }}
                          attempts: "%UPSTREAM_REQUEST_ATTEMPT_COUNT%"
                          bytes_in: "%BYTES_RECEIVED%"
                          bytes_out: "%BYTES_SENT%"
                          first_byte_ms: "%RESPONSE_DURATION%"
                          total_ms: "%DURATION%"
                {{- end }}
                route_config:
                  name: llm
                  virtual_hosts:
                    - name: llm
                      domains: ["*"]
                      routes:
                        - name: engines
                          match: { prefix: / }
                          {{- include "rolter.route" . | nindent 26 }}
                http_filters:
                  {{- range splitList " " (include "rolter.filters" .) }}
                  - name: {{ . }}
                    typed_config:
                      {{- include "rolter.wasm" (dict "root" $ "id" . "code" "local: { filename: /etc/rolter-filter/plugin.wasm }") | nindent 22 }}
                  {{- end }}
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
    # Two paths of the admin interface, which itself is for this pod alone.
    - name: metrics
      address:
        socket_address: { address: 0.0.0.0, port_value: {{ int .Values.envoy.metricsPort }} }
      # Clients that are shed do not matter here.
      ignore_global_conn_limit: true
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: metrics
                route_config:
                  virtual_hosts:
                    - name: metrics
                      domains: ["*"]
                      routes:
                        {{- range list "/ready" "/stats/prometheus" }}
                        - match: { path: {{ . }}, headers: [{ name: ":method", string_match: { exact: GET } }] }
                          route: { cluster: admin }
                        {{- end }}
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router

  clusters:
    {{- include "rolter.clusters" . | nindent 4 }}
    - name: admin
      type: STATIC
      connect_timeout: 1s
      load_assignment:
        cluster_name: admin
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 9901 } } }

stats_config:
  {{- include "rolter.stats" . | nindent 2 }}
{{- end }}

{{/* What a pod's Envoy does before it is ended: it tells clients to go elsewhere, and waits until all
that is under way is answered. */}}
{{- define "rolter.drain" -}}
ask() { exec 3<>/dev/tcp/127.0.0.1/9901 && printf '%s %s HTTP/1.1\r\nhost: admin\r\ncontent-length: 0\r\nconnection: close\r\n\r\n' "$1" "$2" >&3 && cat <&3; }
ask POST /healthcheck/fail
# Until everybody has heard that this pod goes.
sleep {{ int .Values.drainDelaySeconds }}
for _ in $(seq {{ int .Values.drainSeconds }}); do
  case $(ask GET '/stats?filter=^http.llm.downstream_rq_active$') in *'downstream_rq_active: 0'*) break ;; esac
  sleep 1
done
{{- end }}
