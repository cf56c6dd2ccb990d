{{/*
A role and its binding. The names are fixed, since each stands for what one operator alone may look after: Helm gives no object
to two releases. Takes root, kind, name, namespace, rules (the name of a template) and account (a subject).
*/}}
{{- define "rljob-operator.role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "rljob-operator.labels" .root | nindent 4 }}
rules:
{{ include .rules .root }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "rljob-operator.labels" .root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ .kind }}, name: {{ .name }}}
subjects: {{- list .account | toYaml | nindent 0 }}
{{- end -}}
