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

{{/*
A role on jobs, and on their status, which only the operator writes. Takes root, role (view, edit or admin), verbs, and for a Role
namespace and subjects.
*/}}
{{- define "rljob-operator.roleOfUsers" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if .namespace }}Role{{ else }}ClusterRole{{ end }}
metadata:
  name: rljobs-{{ .role }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "rljob-operator.labels" .root | nindent 4 }}
    {{- if not .namespace }}
    rbac.authorization.k8s.io/aggregate-to-{{ .role }}: "true"
    {{- end }}
rules:
- apiGroups: [rljob.dev]
  resources: [rljobs, rlexperiments]
  verbs: {{ toJson .verbs }}
- apiGroups: [rljob.dev]
  resources: [rljobs/status, rlexperiments/status]
  verbs: [get]
- apiGroups: [rljob.dev]
  resources: [rljobs/scale]
  verbs: {{ ternary (list "get") (list "get" "update" "patch") (eq .role "view") | toJson }}
{{- with .subjects }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: rljobs-{{ $.role }}
  namespace: {{ $.namespace }}
  labels: {{- include "rljob-operator.labels" $.root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: rljobs-{{ $.role }}}
subjects: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}
