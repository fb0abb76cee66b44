{{/* What is added to a pod with a sidecar of Istio. It has no probes: a client must not wait for what
it can do without. Pods ask for it before Istio's template `sidecar`, which then moves istio-proxy to
the init containers where it is one. */}}
{{- define "rolter.injection" -}}
spec:
  {{- if .Values.sidecar.enabled }}
  initContainers:
    - {{- include "rolter.sidecar" (dict "root" . "user" 1337 "probes" false) | nindent 6 }}
  containers:
    - name: istio-proxy
      volumeMounts:
        - { name: rolter-run, mountPath: /run/rolter }
  volumes:
    {{- include "rolter.volumes" . | nindent 4 }}
  {{- end }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
{{- end }}
