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

{{- define "aquifer.efs.uninstall-check-rules" -}}
# Which SharedVolumes are left.
- apiGroups: ["aws-efs.managed.openshift.io"]
  resources: ["sharedvolumes"]
  verbs: ["list"]
# Whether the driver's node plugin is left although its Component is gone; its namespace may have been another one before.
- apiGroups: ["apps"]
  resources: ["daemonsets"]
  verbs: ["list"]
{{- end }}

{{- define "aquifer.efs.before-uninstall" -}}
aquifer efs uninstall
{{- end }}
