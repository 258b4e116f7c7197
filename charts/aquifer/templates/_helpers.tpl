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
