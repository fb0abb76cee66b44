{{/* Values that are well-formed and yet not meant. */}}
{{- define "rolter.refuse" -}}
{{- $istio := ne .Values.mode "envoy" }}
{{- if and (include "rolter.named" .) (not .Values.sidecar.enabled) }}
{{- fail "rolter.providers: the sidecar is who looks DNS names up; write sidecar.enabled: true, or endpoints by address" }}
{{- end }}
{{- if and (eq .Values.pool.fallback "least_request") (include "rolter.keys" .) }}
{{- fail "pool.fallback: least_request would pass over allowed_keys; write none, or leave it out" }}
{{- end }}
{{- if and $istio .Values.istio.mtls.enabled (not .Values.istio.mtls.subjectAltNames) }}
{{- fail "istio.mtls.subjectAltNames: without, anybody in the mesh could be an engine; write who they are, as in spiffe://cluster.local/ns/llm/sa/vllm" }}
{{- end }}

{{- $once := int64 .Values.limits.per_connection_buffer_limit_bytes }}
{{- $held := max (int64 .Values.limits.request_body_buffer_limit) $once }}
{{- $needed := add (int64 (.Values.rolter.max_request_bytes | default 1048576)) $once }}
{{- if lt $held $needed }}
{{- fail (printf "limits.request_body_buffer_limit: Envoy would answer 413 to requests that the filter reads; write %d or more, or a smaller rolter.max_request_bytes" $needed) }}
{{- end }}
{{- range concat (list .Values.rolter) .Values.rolter.routes }}
{{- if lt $held (int64 ((.policy | default dict).max_answer_bytes | default 0)) }}
{{- fail (printf "limits.request_body_buffer_limit: it is smaller than a policy's max_answer_bytes; write %d or more" (int64 .policy.max_answer_bytes)) }}
{{- end }}
{{- end }}

{{- $own := and (eq .Values.mode "istio-gateway") .Values.istio.gateway.create }}
{{- range .Values.rolter.routes }}
{{- $match := .match | default dict }}
{{- if and $istio (ne ($match.route_name | default $.Values.istio.route) $.Values.istio.route) }}
{{- fail (printf "rolter.routes: %q is for the Envoy route %q, and it is %q that leads to engines; write the same in match.route_name and istio.route" .name $match.route_name $.Values.istio.route) }}
{{- end }}
{{- if not (or (not $istio) $own $match.hosts $match.route_name) }}
{{- fail (printf "rolter.routes: %q is for any host, and clients send other requests through the same listener; write match: { route_name: %s }" .name $.Values.istio.route) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Values that are for other modes, as far as their default is to have none. */}}
{{- define "rolter.ignored" -}}
{{- $ignored := list }}
{{- if ne .Values.mode "envoy" }}{{ $ignored = append $ignored "filter.volume" }}{{ end }}
{{- if not (or (eq .Values.mode "envoy") (and (eq .Values.mode "istio-gateway") .Values.istio.gateway.create)) }}
{{- $ignored = concat $ignored (list "podAnnotations" "podLabels" "nodeSelector" "tolerations" "affinity" "service.annotations" "service.spec" "networkPolicy.metricsFrom" "networkPolicy.egress") }}
{{- if ne .Values.mode "engines" }}{{ $ignored = append $ignored "networkPolicy.from" }}{{ end }}
{{- end }}
{{- if ne .Values.mode "engines" }}{{ $ignored = append $ignored "networkPolicy.eventsFrom" }}{{ end }}
{{- range $path := $ignored }}
{{- $value := $.Values }}
{{- range splitList "." $path }}{{ $value = index $value . }}{{ end }}
{{- if $value }}{{ fail (printf "%s: nothing that mode %s makes has it; leave it out" $path $.Values.mode) }}{{ end }}
{{- end }}
{{- end }}
