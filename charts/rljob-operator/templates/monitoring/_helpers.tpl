{{/* Ends with a sentence where the cluster lacks a kind of the Prometheus operator. Without a cluster (`helm template`) Helm knows of
groups only, not even that there are pods, and nothing is checked. Takes (root, kind, name of the value). */}}
{{- define "rljob-operator.monitoring.require" -}}
{{- $root := index . 0 -}}
{{- $known := $root.Capabilities.APIVersions -}}
{{- if and ($known.Has "v1/Pod") (not ($known.Has (printf "monitoring.coreos.com/v1/%s" (index . 1)))) -}}
{{- fail (printf "%s is true, but this cluster does not know the kind %s: install the CRDs of the Prometheus operator first, or set it to false" (index . 2) (index . 1)) -}}
{{- end -}}
{{- end -}}

{{/* What an endpoint of both monitors has. Takes the monitor's values. */}}
{{- define "rljob-operator.monitoring.endpoint" -}}
port: metrics
path: /metrics
interval: {{ .interval }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
