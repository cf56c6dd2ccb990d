{{/* Name of every object of the release, cut so that a suffix of ten characters still fits into a label. */}}
{{- define "rljob-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else if contains (include "rljob-operator.name" .) .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "rljob-operator.name" .) | trunc 53 | trimSuffix "-" -}}
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
{{ include "rljob-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: rljob
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
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
