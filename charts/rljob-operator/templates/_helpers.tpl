{{/* Name of every object of the release, cut so that a suffix of ten characters still fits into a label. */}}
{{- define "rljob-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else if contains (include "rljob-operator.name" .) .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "rljob-operator.name" .) | replace "." "-" | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "rljob-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "rljob-operator.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* Labels that every object has. */}}
{{- define "rljob-operator.labels" -}}
{{- include "rljob-operator.labelsAnd" (list . dict) -}}
{{- end -}}

{{/* The same and more, by `list $ MORE`. Each stands once: MORE wins over commonLabels, these over the chart's, and none over those
that pods are found by or that Helm knows its objects by. */}}
{{- define "rljob-operator.labelsAnd" -}}
{{- $root := index . 0 -}}
{{- $fixed := include "rljob-operator.selectorLabels" $root | fromYaml -}}
{{- $_ := set $fixed "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $chart := printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" -}}
{{- $own := dict "app.kubernetes.io/version" $root.Chart.AppVersion "app.kubernetes.io/part-of" "rljob" "helm.sh/chart" $chart -}}
{{- toYaml (merge $fixed (default dict (index . 1)) (default dict $root.Values.commonLabels) $own) -}}
{{- end -}}

{{/* Labels that the operator's pods are found by; they never change. */}}
{{- define "rljob-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "rljob-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rljob-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "rljob-operator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.create is false: name the ServiceAccount to use in serviceAccount.name" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Name of the PriorityClass that the release makes; empty where it makes none. */}}
{{- define "rljob-operator.priorityClass" -}}
{{- if and .Values.priorityClass.create (not .Values.priorityClassName) (not .Values.watchNamespaces) -}}
{{- default (include "rljob-operator.fullname" .) .Values.priorityClass.name -}}
{{- end -}}
{{- end -}}

{{/* The operator's image; a digest wins over a tag. */}}
{{- define "rljob-operator.image" -}}
{{- $name := .Values.image.repository -}}
{{- with .Values.image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $name .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The file that `rljob operator --config` reads. */}}
{{- define "rljob-operator.config" -}}
{{- $worker := printf "rljob-worker:%s" .Chart.AppVersion -}}
{{- with .Values.image.registry }}{{ $worker = printf "%s/%s" . $worker }}{{ end -}}
{{- $config := .Values.config -}}
{{- if not $config.image }}
{{- $config = merge (omit $config "image") (dict "image" $worker "gpuImage" (printf "%s-gpu" $worker)) }}
{{- end -}}
{{ toYaml $config }}
{{- end -}}
