{{- /* Names are fixed, and there are no overrides: one Aquifer serves a cluster, Helm refuses a second release that would own the same
       objects, and the command line finds the operator, its account and its Leases by name. */ -}}

{{- define "aquifer.selector" -}}
app.kubernetes.io/name: aquifer
app.kubernetes.io/component: operator
{{- end }}

{{- /* Labels of all objects. Those of users come first here and lose where they have the name of one of ours. */ -}}
{{- define "aquifer.labels-of" -}}
{{- $own := .selector | fromYaml }}
{{- $_ := set $own "app.kubernetes.io/part-of" "aquifer" }}
{{- $_ := set $own "app.kubernetes.io/version" .root.Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service }}
{{- merge $own .root.Values.commonLabels | toYaml }}
{{- end }}

{{- define "aquifer.labels" -}}
{{ include "aquifer.labels-of" (dict "root" . "selector" (include "aquifer.selector" .)) }}
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
{{ include "aquifer.labels-of" (dict "root" . "selector" (include "aquifer.uninstall-check.selector" .)) }}
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
