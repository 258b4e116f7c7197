{{- define "aquifer.tide.environment" -}}
- name: AQUIFER_TIDE_NAMESPACE
  value: {{ .Values.tide.namespace | quote }}
{{- end }}

{{- define "aquifer.tide.notes" -}}
kubectl get tides --namespace {{ .Values.tide.namespace }}
{{- end }}

{{- define "aquifer.tide.uninstall-check-rules" -}}
- apiGroups: ["tides.example"]
  resources: ["tides"]
  verbs: ["list"]
{{- end }}

{{- define "aquifer.tide.before-uninstall" -}}
kubectl delete tides --all --namespace {{ .Values.tide.namespace }}
{{- end }}

{{- define "aquifer.tide.admission-policies" -}}
{{- end }}
