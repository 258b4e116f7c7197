{{- define "aquifer.efs.environment" -}}
{{- /* Its rights would go to the new place while the node plugin is still in the old one. */}}
{{- range (lookup "apps/v1" "DaemonSet" "" "").items }}
{{- if and (eq .metadata.name "efs-csi-node") (eq (dig "labels" "app.kubernetes.io/part-of" "" .metadata) "aquifer") (ne .metadata.namespace $.Values.efs.namespace) }}
{{- fail (printf "the EFS driver is in namespace %s: efs.namespace cannot be %s until it is removed (aquifer efs uninstall)" .metadata.namespace $.Values.efs.namespace) }}
{{- end }}
{{- end }}
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

{{- /* Refuses at apply what crates/efs/src/volumes/access.rs would refuse later, as far as that can be said in CEL. Each SharedFileSystem is
       a parameter that is judged by itself, and all must pass, while for the operator one that allows is enough. So only those count that say
       by a label that no other names their file system, and the second policy keeps that true. The operator judges all the same, so
       that an error here refuses nothing. A field that holds null is there for `has`, and means the same as none: where the definition
       lets a field be null, that is asked too. */ -}}
{{- define "aquifer.efs.admission-policies" -}}
{{- if .Values.efs.admissionPolicy.enabled }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: aquifer-efs-tenancy
  labels:
    {{- include "aquifer.labels" . | nindent 4 }}
spec:
  failurePolicy: Ignore
  paramKind:
    apiVersion: aws-efs.managed.openshift.io/v1alpha1
    kind: SharedFileSystem
  matchConstraints:
    resourceRules:
      - apiGroups: ["aws-efs.managed.openshift.io"]
        apiVersions: ["*"]
        resources: ["sharedvolumes"]
        operations: ["CREATE", "UPDATE"]
  matchConditions:
    - name: is-not-the-operator
      expression: request.userInfo.username != 'system:serviceaccount:{{ .Release.Namespace }}:aquifer'
    - name: is-not-being-deleted
      expression: "!has(object.metadata.deletionTimestamp)"
    # What asks for the same as before is not judged anew: revoking cuts nothing.
    - name: asks-for-something-new
      expression: >-
        request.operation == 'CREATE' || object.spec.fileSystemID != oldObject.spec.fileSystemID
        || (has(object.spec.accessPointID) && dyn(object.spec.accessPointID) != null ? object.spec.accessPointID : '')
        != (has(oldObject.spec.accessPointID) && dyn(oldObject.spec.accessPointID) != null ? oldObject.spec.accessPointID : '')
  variables:
    - name: concerns
      expression: params.spec.fileSystemID == object.spec.fileSystemID
    - name: labels
      expression: "has(namespaceObject.metadata.labels) ? namespaceObject.metadata.labels : {}"
    - name: isNamed
      expression: >-
        has(params.spec.allowedNamespaces) && has(params.spec.allowedNamespaces.names)
        && request.namespace in params.spec.allowedNamespaces.names
    - name: isSelected
      expression: >-
        has(params.spec.allowedNamespaces) && has(params.spec.allowedNamespaces.selector)
        && dyn(params.spec.allowedNamespaces.selector) != null
        && (!has(params.spec.allowedNamespaces.selector.matchLabels)
        || params.spec.allowedNamespaces.selector.matchLabels.all(key, key in variables.labels
        && variables.labels[key] == params.spec.allowedNamespaces.selector.matchLabels[key]))
        && (!has(params.spec.allowedNamespaces.selector.matchExpressions)
        || params.spec.allowedNamespaces.selector.matchExpressions.all(one,
        one.operator == 'In' ? one.key in variables.labels && has(one.values) && variables.labels[one.key] in one.values
        : one.operator == 'NotIn' ? !(one.key in variables.labels && has(one.values) && variables.labels[one.key] in one.values)
        : one.operator == 'Exists' ? one.key in variables.labels
        : one.operator == 'DoesNotExist' ? !(one.key in variables.labels) : false))
    - name: allowsNamespace
      expression: variables.isNamed || variables.isSelected
    - name: point
      expression: >-
        has(object.spec.accessPointID) && dyn(object.spec.accessPointID) != null ? object.spec.accessPointID : ''
    - name: allowsPoint
      expression: >-
        has(params.spec.allowedAccessPoints) && dyn(params.spec.allowedAccessPoints) != null
        && (has(params.spec.allowedAccessPoints.perNamespace)
        ? params.spec.allowedAccessPoints.perNamespace.exists(one, one.namespace == request.namespace
        && has(one.accessPoints) && variables.point in one.accessPoints)
        : has(params.spec.allowedAccessPoints.all) && params.spec.allowedAccessPoints.all)
    - name: allowsRoot
      expression: has(params.spec.allowRoot) && dyn(params.spec.allowRoot) == true
  validations:
    - expression: "!variables.concerns || variables.allowsNamespace"
      reason: Forbidden
      messageExpression: >-
        'SharedFileSystem ' + params.metadata.name + ' does not allow the namespace ' + request.namespace + ' to use '
        + object.spec.fileSystemID + '; ask an administrator of the cluster to add it to spec.allowedNamespaces'
    - expression: "!variables.concerns || !variables.allowsNamespace || variables.point != '' || variables.allowsRoot"
      reason: Forbidden
      messageExpression: >-
        'SharedFileSystem ' + params.metadata.name + ' does not allow the root of ' + object.spec.fileSystemID
        + '; set spec.accessPointID here, or ask an administrator of the cluster to set spec.allowRoot'
    - expression: "!variables.concerns || !variables.allowsNamespace || variables.point == '' || variables.allowsPoint"
      reason: Forbidden
      messageExpression: >-
        'SharedFileSystem ' + params.metadata.name + ' does not allow ' + variables.point + ' to the namespace ' + request.namespace
        + '; use another access point, or ask an administrator of the cluster to add it to spec.allowedAccessPoints'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: aquifer-efs-tenancy
  labels:
    {{- include "aquifer.labels" . | nindent 4 }}
spec:
  policyName: aquifer-efs-tenancy
  validationActions: ["Deny"]
  paramRef:
    selector:
      matchLabels:
        aquifer.storage/sole: "true"
    parameterNotFoundAction: Allow
---
# Where one SharedFileSystem says that it is the only one of its file system, there is no other.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: aquifer-efs-sole
  labels:
    {{- include "aquifer.labels" . | nindent 4 }}
spec:
  failurePolicy: Fail
  paramKind:
    apiVersion: aws-efs.managed.openshift.io/v1alpha1
    kind: SharedFileSystem
  matchConstraints:
    resourceRules:
      - apiGroups: ["aws-efs.managed.openshift.io"]
        apiVersions: ["*"]
        resources: ["sharedfilesystems"]
        operations: ["CREATE", "UPDATE"]
  matchConditions:
    - name: is-not-being-deleted
      expression: "!has(object.metadata.deletionTimestamp)"
  variables:
    - name: isSole
      expression: >-
        has(object.metadata.labels) && 'aquifer.storage/sole' in object.metadata.labels
        && object.metadata.labels['aquifer.storage/sole'] == 'true'
    - name: otherIsSole
      expression: >-
        has(params.metadata.labels) && 'aquifer.storage/sole' in params.metadata.labels
        && params.metadata.labels['aquifer.storage/sole'] == 'true'
  validations:
    - expression: >-
        params.metadata.name == object.metadata.name || params.spec.fileSystemID != object.spec.fileSystemID
        || !(variables.isSole || variables.otherIsSole)
      reason: Invalid
      messageExpression: >-
        'SharedFileSystem ' + params.metadata.name + ' names ' + object.spec.fileSystemID
        + ' as well, and the label aquifer.storage/sole of one of the two says that no other does; take that label off, or put what both say into one'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: aquifer-efs-sole
  labels:
    {{- include "aquifer.labels" . | nindent 4 }}
spec:
  policyName: aquifer-efs-sole
  validationActions: ["Deny"]
  paramRef:
    selector: {}
    parameterNotFoundAction: Allow
{{- end }}
{{- end }}
