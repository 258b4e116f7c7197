{{- /* Names are fixed: one Aquifer serves a cluster, and Helm refuses a second release that would own the same objects. */ -}}

{{- define "aquifer.selector" -}}
app.kubernetes.io/name: aquifer
app.kubernetes.io/component: operator
{{- end }}

{{- define "aquifer.labels" -}}
{{ include "aquifer.selector" . }}
app.kubernetes.io/part-of: aquifer
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "aquifer.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "aquifer.uninstall-check.selector" -}}
app.kubernetes.io/name: aquifer
app.kubernetes.io/component: uninstall-check
{{- end }}

{{- define "aquifer.uninstall-check.labels" -}}
{{ include "aquifer.uninstall-check.selector" . }}
app.kubernetes.io/part-of: aquifer
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* Where pods of ours run, and by whose leave they get their image. */ -}}
{{- define "aquifer.pod.place" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The image names a user that is not root. None is set here: OpenShift gives each namespace its own. */ -}}
{{- define "aquifer.pod.security" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "aquifer.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}
