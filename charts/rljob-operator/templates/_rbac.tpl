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
Fails where another release looks after the same namespaces, or after others from this one's. Helm would refuse most of these
too, in words about annotations. Without a cluster (helm template) nothing is found.
*/}}
{{- define "rljob-operator.refuseSecond" -}}
{{- if .Values.scopeCheck -}}
{{- $api := "rbac.authorization.k8s.io/v1" -}}
{{- $own := include "rljob-operator.namespace" . -}}
{{- include "rljob-operator.refuseOther" (dict "root" . "found" (lookup $api "Role" $own "rljob-operator-leader") "what" (printf "runs in namespace %s" $own) "do" "Upgrade that release, or install this one into a namespace of its own.") -}}
{{- include "rljob-operator.refuseOther" (dict "root" . "found" (lookup $api "ClusterRole" "" "rljob-operator") "what" "looks after all namespaces" "do" "Upgrade that release, or give it watchNamespaces that leave out this one's.") -}}
{{- range .Values.watchNamespaces -}}
{{- include "rljob-operator.refuseOther" (dict "root" $ "found" (lookup $api "Role" . "rljob-operator") "what" (printf "looks after namespace %s" .) "do" "Upgrade that release, or take the namespace out of watchNamespaces of one of the two.") -}}
{{- else -}}
{{- range (lookup $api "Role" "" "").items -}}
{{- if eq .metadata.name "rljob-operator" -}}
{{- include "rljob-operator.refuseOther" (dict "root" $ "found" . "what" (printf "looks after namespace %s" .metadata.namespace) "do" "Uninstall that release first, or give this one watchNamespaces.") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes root, found (a role or nothing), what (it stands for) and do (what helps). */}}
{{- define "rljob-operator.refuseOther" -}}
{{- if .found -}}
{{- $notes := default dict .found.metadata.annotations -}}
{{- $name := get $notes "meta.helm.sh/release-name" -}}
{{- $namespace := get $notes "meta.helm.sh/release-namespace" -}}
{{- if ne (list $name $namespace | toJson) (list .root.Release.Name .root.Release.Namespace | toJson) -}}
{{- $who := ternary (printf "release %s of namespace %s" $name $namespace) "an operator that was installed without Helm" (ne $name "") -}}
{{- fail (printf "%s %s already; two operators of one namespace work against each other. %s (scopeCheck: false skips this check.)" $who .what .do) -}}
{{- end -}}
{{- end -}}
{{- end -}}
