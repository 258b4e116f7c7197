{{- /* Written by `cargo xtask chart` from crates/efs/chart. Do not edit. */ -}}
{{- define "aquifer.efs.environment" -}}
{{- with .Values.efs }}
- name: AQUIFER_EFS_DRIVER
  value: {{ .driver | quote }}
{{- /* Always said, also where the values of an older release do not have it. */}}
- name: AQUIFER_EFS_TENANCY
  value: {{ .tenancy | default "Open" | quote }}
- name: AQUIFER_EFS_NAMESPACE
  value: {{ .namespace | quote }}
- name: AQUIFER_EFS_TOLERATIONS
  value: {{ .tolerations | quote }}
{{- if .nodeSelector }}
{{- $labels := list }}
{{- range $key, $value := .nodeSelector }}
{{- $labels = append $labels (printf "%s=%s" $key $value) }}
{{- end }}
- name: AQUIFER_EFS_NODE_SELECTOR
  value: {{ join "," $labels | quote }}
{{- end }}
- name: AQUIFER_EFS_KUBELET_DIR
  value: {{ .kubeletDir | default "/var/lib/kubelet" | quote }}
{{- with .resources }}
- name: AQUIFER_EFS_RESOURCES
  value: {{ toJson . | quote }}
{{- end }}
{{- with .imagePullSecrets }}
{{- $names := list }}
{{- range . }}
{{- $names = append $names .name }}
{{- end }}
- name: AQUIFER_EFS_PULL_SECRETS
  value: {{ join "," $names | quote }}
{{- end }}
{{- range $name, $image := .images }}
{{- if $image }}
- name: AQUIFER_EFS_{{ upper $name }}_IMAGE
  value: {{ $image | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "aquifer.efs.notes" -}}
kubectl get component efs-driver
kubectl get sharedvolumes --all-namespaces
{{- end }}

{{- define "aquifer.efs.before-uninstall" -}}
aquifer efs uninstall
{{- end }}
