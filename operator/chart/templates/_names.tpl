{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "operator.name" -}}
{{- if eq .Release.Name "karmada-installer" }}karmada-installer{{ else }}karmada-installer-{{ .Release.Name | trunc 45 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "operator.selector" -}}
app.kubernetes.io/name: karmada-installer-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: karmada-installer
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "operator.namespaces" -}}
{{- prepend .Values.namespaces .Release.Namespace | uniq | toJson }}
{{- end }}

{{/* Account of runs: that of the operator, unless they have pods of their own. */}}
{{- define "operator.runs" -}}
{{ include "operator.name" . }}{{ if eq .Values.runs.executor "Jobs" }}-runs{{ end }}
{{- end }}

{{/* Binding of a role to the account of its name; a list of the root, "Cluster" or "", the name, and its namespace. */}}
{{- define "operator.binding" -}}
{{- $root := index . 0 }}
{{- $name := index . 2 }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 1 }}RoleBinding
metadata:
  name: {{ $name }}
  {{- with index . 3 }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "operator.labels" $root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ index . 1 }}Role, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace }}}]
{{- end }}

{{- define "operator.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag }}{{ end }}
{{- end }}

{{/* What pods of the operator and of runs have in common. */}}
{{- define "operator.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "operator.container" -}}
image: {{ include "operator.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "operator.volumes" -}}
# In memory: keys and kubeconfigs of runs touch no disk.
- name: runs
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.runs.memory }}}
- name: cache
  {{- if .Values.cache.existingClaim }}
  persistentVolumeClaim: {claimName: {{ .Values.cache.existingClaim }}}
  {{- else }}
  emptyDir: {sizeLimit: {{ .Values.cache.size }}}
  {{- end }}
{{- end }}
