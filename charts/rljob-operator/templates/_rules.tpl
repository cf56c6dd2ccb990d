{{/* Made from operator/rljob_operator/kube/process/rbac.py by `make generate`. */}}

{{- define "rljob-operator.rulesOfJobs" -}}
# the jobs; what they want is only read, but for runs of experiments
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["list", "watch"]
# ttlSecondsAfterFinished
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["delete"]
# runs of experiments: to start, to suspend and to resume
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["create", "patch"]
# the experiments; what they want is only read
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments"]
  verbs: ["list", "watch"]
# what is known of an experiment
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments/status"]
  verbs: ["patch"]
# runs that block its deletion, where that is checked
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments/finalizers"]
  verbs: ["update"]
# what is known of a job
- apiGroups: ["rljob.dev"]
  resources: ["rljobs/status"]
  verbs: ["patch"]
# children that block their job's deletion, where that is checked
- apiGroups: ["rljob.dev"]
  resources: ["rljobs/finalizers"]
  verbs: ["update"]
# how members are, and whose a name is that was taken
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["get", "list", "watch"]
# members: to start, to mark as asked or counted, to end
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["create", "patch", "delete"]
# keys and token, made once; the token is sent with requests to the learner
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get", "create"]
# the job in force, and the pods' names
- apiGroups: [""]
  resources: ["configmaps", "services"]
  verbs: ["get", "create", "patch"]
# checkpoints and experience; none is ever deleted
- apiGroups: [""]
  resources: ["persistentvolumeclaims"]
  verbs: ["get", "create"]
# which of those that it has made are not there any more, and which claims are on their way out
- apiGroups: [""]
  resources: ["configmaps", "services", "persistentvolumeclaims"]
  verbs: ["list", "watch"]
# which of those that it has made are not there any more, and which claims are on their way out
- apiGroups: ["networking.k8s.io"]
  resources: ["networkpolicies"]
  verbs: ["list", "watch"]
# who may reach the pods
- apiGroups: ["networking.k8s.io"]
  resources: ["networkpolicies"]
  verbs: ["get", "create", "patch", "delete"]
# to remove what a job that is over has left in a Redis of its user's
- apiGroups: ["batch"]
  resources: ["jobs"]
  verbs: ["create"]
# what happened, in series
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create", "patch"]
{{- if (.Values.config.kueue).enabled }}
# to ask Kueue for quota
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloads"]
  verbs: ["get", "list", "watch", "create", "delete"]
# to give quota back
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloads/status"]
  verbs: ["patch"]
{{- end }}
{{- end -}}

{{- define "rljob-operator.rulesOfAllJobs" -}}
# the jobs; what they want is only read, but for runs of experiments
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["list", "watch"]
# ttlSecondsAfterFinished
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["delete"]
# runs of experiments: to start, to suspend and to resume
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["create", "patch"]
# the experiments; what they want is only read
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments"]
  verbs: ["list", "watch"]
# what is known of an experiment
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments/status"]
  verbs: ["patch"]
# runs that block its deletion, where that is checked
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments/finalizers"]
  verbs: ["update"]
# what is known of a job
- apiGroups: ["rljob.dev"]
  resources: ["rljobs/status"]
  verbs: ["patch"]
# children that block their job's deletion, where that is checked
- apiGroups: ["rljob.dev"]
  resources: ["rljobs/finalizers"]
  verbs: ["update"]
# how members are, and whose a name is that was taken
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["get", "list", "watch"]
# members: to start, to mark as asked or counted, to end
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["create", "patch", "delete"]
# keys and token, made once; the token is sent with requests to the learner
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get", "create"]
# the job in force, and the pods' names
- apiGroups: [""]
  resources: ["configmaps", "services"]
  verbs: ["get", "create", "patch"]
# checkpoints and experience; none is ever deleted
- apiGroups: [""]
  resources: ["persistentvolumeclaims"]
  verbs: ["get", "create"]
# which of those that it has made are not there any more, and which claims are on their way out
- apiGroups: [""]
  resources: ["configmaps", "services", "persistentvolumeclaims"]
  verbs: ["list", "watch"]
# which of those that it has made are not there any more, and which claims are on their way out
- apiGroups: ["networking.k8s.io"]
  resources: ["networkpolicies"]
  verbs: ["list", "watch"]
# who may reach the pods
- apiGroups: ["networking.k8s.io"]
  resources: ["networkpolicies"]
  verbs: ["get", "create", "patch", "delete"]
# to remove what a job that is over has left in a Redis of its user's
- apiGroups: ["batch"]
  resources: ["jobs"]
  verbs: ["create"]
# what happened, in series
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create", "patch"]
# which nodes are lost
- apiGroups: [""]
  resources: ["nodes"]
  verbs: ["get", "list", "watch"]
# why a claim gets no volume
- apiGroups: ["storage.k8s.io"]
  resources: ["storageclasses"]
  verbs: ["get"]
# which node a volume can't leave, for the message alone
- apiGroups: [""]
  resources: ["persistentvolumes"]
  verbs: ["get"]
{{- if (.Values.config.kueue).enabled }}
# to ask Kueue for quota
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloads"]
  verbs: ["get", "list", "watch", "create", "delete"]
# to give quota back
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloads/status"]
  verbs: ["patch"]
{{- end }}
{{- if (.Values.config.kueue).enabled }}
# to which nodes a queue sends pods
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["resourceflavors"]
  verbs: ["get"]
# before which others a job comes in its queue
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloadpriorityclasses"]
  verbs: ["get"]
# the same, where its pods have one
- apiGroups: ["scheduling.k8s.io"]
  resources: ["priorityclasses"]
  verbs: ["get"]
{{- end }}
{{- end -}}

{{- define "rljob-operator.rulesOfCluster" -}}
# which nodes are lost
- apiGroups: [""]
  resources: ["nodes"]
  verbs: ["get", "list", "watch"]
# why a claim gets no volume
- apiGroups: ["storage.k8s.io"]
  resources: ["storageclasses"]
  verbs: ["get"]
# which node a volume can't leave, for the message alone
- apiGroups: [""]
  resources: ["persistentvolumes"]
  verbs: ["get"]
{{- if (.Values.config.kueue).enabled }}
# to which nodes a queue sends pods
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["resourceflavors"]
  verbs: ["get"]
# before which others a job comes in its queue
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloadpriorityclasses"]
  verbs: ["get"]
# the same, where its pods have one
- apiGroups: ["scheduling.k8s.io"]
  resources: ["priorityclasses"]
  verbs: ["get"]
{{- end }}
{{- end -}}

{{- define "rljob-operator.rulesOfOperator" -}}
# which replica leads
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["get", "create", "patch"]
{{- end -}}
