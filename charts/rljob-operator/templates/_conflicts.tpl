{{/*
Fails where another release looks after the same namespaces, or after others from this one's, or has the CRD. Helm would refuse
most of these too, in words about annotations. Without a cluster (helm template) nothing is found.
*/}}
{{- define "rljob-operator.refuseConflicts" -}}
{{- if .Values.conflictCheck -}}
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
{{- if .Values.crds.enabled -}}
{{- include "rljob-operator.refuseCRD" . -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes root, found (a role or nothing), what (it stands for) and do (what helps). One `if` in another, since Go
before 1.18, with which Helm 3.8 is built, looks at all that `and` is given. */}}
{{- define "rljob-operator.refuseOther" -}}
{{- if .found -}}
{{- if ne (include "rljob-operator.releaseOf" .found) (include "rljob-operator.thisRelease" .root) -}}
{{- fail (printf "%s %s already, and two operators of one namespace work against each other. %s conflictCheck=false skips this check." (include "rljob-operator.releaseOf" .found) .what .do) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "rljob-operator.refuseCRD" -}}
{{- $names := list -}}
{{- $other := "" -}}
{{- range $name := list "rlexperiments.rljob.dev" "rljobs.rljob.dev" -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name -}}
{{- if $found -}}
{{- if ne (include "rljob-operator.releaseOf" $found) (include "rljob-operator.thisRelease" $) -}}
{{- $names = append $names $name -}}
{{- $other = include "rljob-operator.releaseOf" $found -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $names -}}
{{- fail (printf `%s there already, from %s. Leave it alone with crds.enabled=false, or hand it to this release first:
  kubectl annotate crd %s --overwrite meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s
  kubectl label crd %s --overwrite app.kubernetes.io/managed-by=Helm
` (printf (ternary "the CRD %s is" "the CRDs %s are" (eq (join "" $names) (first $names))) (join " and " $names)) $other (join " " $names) .Release.Name .Release.Namespace (join " " $names)) -}}
{{- end -}}
{{- end -}}

{{- define "rljob-operator.thisRelease" -}}
release {{ .Release.Name }} of namespace {{ .Release.Namespace }}
{{- end -}}

{{/* Who installed an object. */}}
{{- define "rljob-operator.releaseOf" -}}
{{- $notes := default dict .metadata.annotations -}}
{{- if hasKey $notes "meta.helm.sh/release-name" -}}
release {{ get $notes "meta.helm.sh/release-name" }} of namespace {{ get $notes "meta.helm.sh/release-namespace" }}
{{- else -}}
a user without Helm
{{- end -}}
{{- end -}}
