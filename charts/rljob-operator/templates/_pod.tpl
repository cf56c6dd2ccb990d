{{/* What every pod of this chart has: the operator's, and the one that looks at jobs before an uninstall. */}}

{{/* Arguments that say which jobs are meant, and how. */}}
{{- define "rljob-operator.arguments" -}}
- operator
- --config=/etc/rljob/config.yaml
- --operator-namespace={{ include "rljob-operator.namespace" . }}
{{- range .Values.watchNamespaces }}
- --namespace={{ . }}
{{- end }}
{{- end -}}

{{/* Of the pod: where it may run, and as whom. */}}
{{- define "rljob-operator.placement" -}}
automountServiceAccountToken: true
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default (ternary (include "rljob-operator.priorityClass" .) "" .Values.priorityClass.create) .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Of the container: mounts, rights and variables. */}}
{{- define "rljob-operator.surroundings" -}}
volumeMounts:
- {name: config, mountPath: /etc/rljob, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- with .Values.securityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.extraEnv }}
env: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{- define "rljob-operator.volumes" -}}
- {name: config, configMap: {name: {{ include "rljob-operator.fullname" . }}}}
- {name: tmp, emptyDir: {sizeLimit: 64Mi}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Annotations of what exists only for the time of an uninstall, from its place among these. Helm shows what a Job has printed. */}}
{{- define "rljob-operator.uninstallHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
helm.sh/hook-output-log-policy: hook-failed,hook-succeeded
{{- end -}}
