{{/* What the operator's pods have. */}}

{{/* Arguments that say which jobs are meant, and how. */}}
{{- define "rljob-operator.arguments" -}}
- operator
- --config=/etc/rljob/config.yaml
- --operator-namespace={{ include "rljob-operator.namespace" . }}
{{- range .Values.watchNamespaces }}
- --namespace={{ . }}
{{- end }}
{{- end -}}

{{/* Where the pod may run, and as whom. */}}
{{- define "rljob-operator.placement" -}}
automountServiceAccountToken: true
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default (include "rljob-operator.priorityClass" .) .Values.priorityClassName }}
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

{{/* Mounts, rights and variables of the container. */}}
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
